// Small helpers for elements, controls and timing.

import { HELP, HINTS } from "./words.js";

/** Make an element: h("button", { class: "quiet", onclick }, "Clear"). */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

let counter = 0;
const freshId = (stem) => `${stem}-${counter++}`;

/** A labelled slider that shows its value. */
export function slider(label, { min, max, step, value, text = (v) => v, onchange }) {
  const id = freshId("slider"),
    output = h("output", { for: id }, text(value));
  const input = h("input", { id, type: "range", min, max, step, value });
  input.addEventListener("input", () => {
    output.textContent = text(Number(input.value));
    onchange(Number(input.value));
  });
  const set = (number) => {
    input.value = number;
    output.textContent = text(Number(input.value));
  };
  return Object.assign(h("div", { class: "field" }, h("label", { for: id }, label), input, output), { set });
}

/** A labelled choice among { value: text }. */
export function choice(label, options, value, onchange) {
  const id = freshId("choice");
  const select = h(
    "select",
    { id },
    ...Object.entries(options).map(([key, text]) =>
      h("option", { value: key, selected: key === value }, text),
    ),
  );
  select.addEventListener("change", () => onchange(select.value));
  return Object.assign(h("div", { class: "field" }, h("label", { for: id }, label), select), { select });
}

/** A labelled tick box. */
export function tick(label, checked, onchange) {
  const input = h("input", { type: "checkbox", checked });
  input.addEventListener("change", () => onchange(input.checked));
  return Object.assign(h("label", { class: "tick" }, input, h("span", {}, label)), { input });
}

/** A button. */
export function button(text, onclick, properties = {}) {
  return h("button", { type: "button", onclick, ...properties }, text);
}

/** A row of buttons of which one is chosen, at first `value`. */
export function chips(label, options, onchange, value) {
  const buttons = Object.entries(options).map(([key, text]) =>
    button(text, () => set(key), { "data-key": key }),
  );
  const mark = (key) => {
    for (const each of buttons) each.setAttribute("aria-pressed", String(each.dataset.key === key));
  };
  const set = (key) => {
    mark(key);
    onchange(key);
  };
  mark(value);
  return h("div", { class: "chips", role: "group", "aria-label": label }, ...buttons);
}

/** A group of controls under a heading. */
export const group = (title, ...children) => h("fieldset", {}, h("legend", {}, title), ...children);

/** Things side by side. */
export const row = (...children) => h("div", { class: "row" }, ...children);

/** A panel under a heading; `name` is what tests call it. */
export function panel(title, note, name, ...children) {
  const heading = h("header", {}, h("h2", {}, title), h("span", { class: "note" }, note));
  return h("section", { class: "panel", "aria-label": title, "data-model": name }, heading, ...children);
}

/** What all tabs look like: a "?" and what leads, the stage, a hint, and controls next to it or below. */
export function tabBody(name, lead, stage, controls) {
  const summary = h("summary", { "aria-label": "What you see here" }, "?");
  const help = h("details", { class: "help" }, summary, h("p", {}, HELP[name].join(" ")));
  const hint = h("p", { id: `keys-${name}`, class: "hint" }, HINTS[name]);
  return h(
    "div",
    { class: "tab-body" },
    h("div", { class: "stage" }, h("div", { class: "lead" }, help, lead), ...stage, hint),
    h("div", { class: "controls" }, ...controls),
  );
}

/** A function that runs at most once per frame, with what it was last called for. */
export function perFrame(run) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      run();
    });
  };
}

/** A number with a real minus sign. */
export const shown = (value, digits = 2) => value.toFixed(digits).replace("-", "−");
