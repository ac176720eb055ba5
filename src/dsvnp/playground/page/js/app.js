// The page: tabs, theme, and what is told to those who listen.

import { Branches } from "./branches.js";
import { CartPole } from "./cartpole.js";
import { Curves } from "./curves.js";
import { Digits } from "./digits.js";
import { themes } from "./theme.js";

const TABS = { curves: Curves, branches: Branches, cartpole: CartPole, digits: Digits };

const live = document.getElementById("live");
let pending = 0;

/** Tell a screen reader, not more than twice a second. */
function announce(text) {
  clearTimeout(pending);
  pending = setTimeout(() => (live.textContent = text), 400);
}

async function start() {
  const response = await fetch("weights/manifest.json");
  if (!response.ok) throw new Error(`weights/manifest.json: ${response.status}`);
  const manifest = await response.json(),
    tabs = {};
  globalThis.playground = { tabs, manifest }; // for the curious, and for tests

  const show = (name, focus = false) => {
    for (const button of document.querySelectorAll("[role=tab]")) {
      const own = button.dataset.tab === name;
      button.setAttribute("aria-selected", String(own));
      button.tabIndex = own ? 0 : -1;
      document.getElementById(button.getAttribute("aria-controls")).hidden = !own;
      if (own && focus) button.focus();
    }
    const root = document.getElementById(`panel-${name}`);
    tabs[name] ??= Object.assign(new TABS[name](root, manifest, announce), { root });
    tabs[name].shown();
    history.replaceState(null, "", `#${name}`);
  };

  const names = [...document.querySelectorAll("[role=tab]")].map((button) => button.dataset.tab);
  for (const button of document.querySelectorAll("[role=tab]")) {
    button.addEventListener("click", () => show(button.dataset.tab));
    button.addEventListener("keydown", ({ key }) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
      if (step) show(names[(names.indexOf(button.dataset.tab) + step + names.length) % names.length], true);
    });
  }
  themes(document.getElementById("theme"), () => Object.values(tabs).forEach((tab) => tab.redraw()));
  const asked = location.hash.slice(1);
  show(names.includes(asked) ? asked : names[0]);
}

/** Say that something went wrong, above everything else. */
function fail(message) {
  const place = document.getElementById("failure");
  place.hidden = false;
  place.textContent = message;
}

addEventListener("playground-error", ({ detail }) => fail(`A network could not be used: ${detail}.`));
start().then(
  () => (document.getElementById("failure").hidden = true),
  (error) => fail(`The playground could not start: ${error.message}.`),
);
