// Themes: light and dark as the system says, until a person chooses; and the colours for canvases.

const NAMES = ["ink", "muted", "line", "surface", "model", "noise", "exact", "warn", "truth", "accent"];
let colours = null;

/** The theme's colours by name, as CSS says. */
export function palette() {
  if (!colours) {
    const style = getComputedStyle(document.documentElement);
    colours = Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }
  return colours;
}

/** A colour with an opacity of its own: the variables are written as r g b. */
export const rgb = (name, alpha = 1) => `rgb(${palette()[name]} / ${alpha})`;

/** Let a button switch the theme; `changed` is called whenever colours differ. */
export function themes(toggle, changed) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () =>
    (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const apply = () => {
    colours = null;
    toggle.setAttribute("aria-pressed", String(isDark()));
    toggle.textContent = isDark() ? "Light" : "Dark";
    toggle.setAttribute("aria-label", isDark() ? "Switch to the light theme" : "Switch to the dark theme");
    changed();
  };
  toggle.addEventListener("click", () => {
    document.documentElement.dataset.theme = remember(isDark() ? "light" : "dark");
    apply();
  });
  const before = remember();
  if (before) document.documentElement.dataset.theme = before;
  system.addEventListener("change", apply);
  apply();
}

/** Keep a choice of theme for the next visit, or read it; some browsers forbid both. */
function remember(theme) {
  try {
    if (theme) localStorage.setItem("playground-theme", theme);
    return theme ?? localStorage.getItem("playground-theme");
  } catch {
    return theme ?? null;
  }
}
