// The tab of curves: points that a person places, what each model makes of them, and the exact answer.

import { Asker } from "./asking.js";
import { button, chips, choice, group, h, help, perFrame, slider, tick } from "./dom.js";
import { functions } from "./gp.js";
import { PLACES, Panel, VIEW } from "./panels.js";
import { PointSet, pointTable } from "./points.js";
import { freshSeed, normals, uniforms } from "./random.js";

const MODELS = [
  ["cnp", "CNP", "one mean, no latent"],
  ["np", "NP", "a global latent"],
  ["attnnp", "AttnNP", "a global latent and attention"],
  ["dsvnp", "DSVNP", "a global and a local latent"],
  ["tnp", "TNP", "a transformer, no latent"],
  ["dsvtnp", "DSVTNP", "a transformer with both latents"],
];
const EXACT = ["exact", "Exact Bayes", "the Gaussian process itself"];
const START = [[-1.6, -0.6], [-1.1, 0.5], [-0.5, 1.0], [0.4, -0.4], [0.7, -0.9]].map(([x, y]) => ({ x, y }));
const KERNEL_NAMES = { rbf: "RBF (smooth)", matern52: "Matérn 5/2 (rougher)", periodic: "Periodic" };

export class Curves {
  state = { showBands: true, showFunctions: true, exact: null, truth: null, probe: null };
  process = { kernel: "rbf", length: 0.5, scale: 0.9, period: 1.2, noise: 0.05 };
  overlay = "average";
  view = "all";
  seed = 11;
  count = 6;
  phase = 0;
  moving = false;

  constructor(root, manifest, announce) {
    this.domain = manifest.domains.curves;
    Object.assign(this.state, {
      interval: this.domain.interval,
      request: () => ({ domain: this.domain, process: null, interval: this.domain.interval }),
      functionRequest: () => ({ count: this.count, seed: this.seed, phase: this.phase }),
      pointAt: (x) => this.#probe(x),
    });
    this.set = new PointSet(announce);
    this.set.points = START;
    const networks = MODELS.filter(([name]) => manifest.networks[`curves-${name}`]);
    this.panels = [
      ...networks.map(([name, title, note]) => this.#panel(name, title, note, `weights/curves-${name}.safetensors`, ["bands", "draws"])),
      this.#panel(...EXACT, null, ["exactBands", "exactDraws"]),
    ];
    this.overlayAsker = new Asker();
    this.surpriseAsker = new Asker();
    this.redraw = perFrame(() => this.panels.forEach((panel) => panel.draw()));
    this.recompute = perFrame(() => this.#recompute());
    this.set.addEventListener("change", ({ detail }) => (detail === "points" ? this.recompute() : this.redraw()));
    root.append(this.#layout());
  }

  #panel(name, title, note, path, jobs) {
    const url = path && new URL(path, document.baseURI).href;
    return new Panel({ name, title, note, url, jobs }, this.set, this.state);
  }

  #layout() {
    this.warning = h("p", { class: "warning", role: "status" });
    this.grid = h("div", { class: "panels" }, ...this.panels.map((panel) => panel.element));
    this.chips = chips("Models", { all: "All", ...Object.fromEntries(this.panels.map(({ model }) => [model.name, model.title])) }, (view) => this.#show(view));
    this.chips.set(matchMedia("(max-width: 32rem)").matches ? this.panels.at(-2).model.name : "all");
    const key = (name, text) => h("li", { class: `key ${name}` }, text);
    const legend = h("ul", { class: "legend", "aria-label": "Legend" }, key("mean", "mean"), key("epistemic", "not known yet (epistemic)"), key("aleatoric", "with noise (aleatoric)"), key("function", "functions drawn"), key("exact", "exact answer"));
    return h(
      "div",
      { class: "tab-body" },
      h("div", { class: "stage" }, h("div", { class: "lead" }, help(
        "Click to place observations: each panel shows what a network trained on thousands of random curves now believes, as a mean, a 95 % interval, and whole functions it considers possible.",
        "The dark band is what more points would remove, the light band adds the noise; networks without a latent variable cannot tell the two apart and show the light band only.",
        "The dashed orange lines are the exact answer of Bayes' rule, so the distance between the two is what the network has yet to learn.",
      ), this.chips), legend, this.warning, this.grid, h("p", { id: "keys", class: "hint" }, "Click adds a point, drag moves it, double click or a long press removes it. Keyboard: arrows move the cross or the selected point, Enter adds, N and P select, Delete removes.")),
      h("div", { class: "controls" }, ...this.#controls()),
    );
  }

  #controls() {
    const length = slider("Length scale", { min: 0.2, max: 1.4, step: 0.05, value: this.process.length, text: (v) => v.toFixed(2), onchange: (v) => this.#change({ length: v }) });
    const period = slider("Period", { min: 0.8, max: 2, step: 0.05, value: this.process.period, text: (v) => v.toFixed(2), onchange: (v) => this.#change({ period: v }) });
    period.hidden = true;
    const kernel = choice("Kernel", KERNEL_NAMES, "rbf", (value) => {
      period.hidden = value !== "periodic";
      length.set(value === "periodic" ? 1 : 0.5);
      this.#change({ kernel: value, length: value === "periodic" ? 1 : 0.5 });
    });
    const noise = choice("Noise σ", Object.fromEntries(this.domain.noise.map((v) => [v, String(v)])), "0.05", (v) => this.#change({ noise: Number(v) }));
    this.truthTick = tick("Show the hidden function", false, () => this.#truth());
    this.moreButton = button("One more point", () => this.#observe(1), { disabled: true });
    const animate = button("Animate", () => this.#animate(animate), { "aria-pressed": "false" });
    return [
      group("Show", tick("95 % intervals", true, (on) => this.#set({ showBands: on })),
        tick("Functions", true, (on) => this.#set({ showFunctions: on })),
        h("div", { class: "row" }, animate, button("New functions", () => this.#reseed()))),
      group("Exact answer", choice("Overlay", { average: "All kernels, averaged", kernel: "The kernel below", none: "None" }, this.overlay, (value) => this.#overlay(value)), kernel, length, period, noise),
      group("Points", h("div", { class: "row" }, button("Draw a function", () => this.#hidden(), { class: "primary" }), this.moreButton, button("Clear", () => this.#clear())), this.truthTick, pointTable(this.set)),
    ];
  }

  #set(values) {
    Object.assign(this.state, values);
    this.recompute();
  }

  #change(values) {
    Object.assign(this.process, values);
    if (this.overlay === "kernel") this.recompute();
  }

  #overlay(value) {
    this.overlay = value;
    this.state.exact = null;
    this.recompute();
    this.redraw();
  }

  #show(view) {
    this.view = view;
    this.grid.classList.toggle("single", view !== "all");
    for (const { element, model } of this.panels)
      element.hidden = view === "all" ? model.name === "exact" : model.name !== view;
    this.recompute();
  }

  #reseed() {
    this.seed = freshSeed();
    this.recompute();
  }

  #probe(x) {
    this.state.probe = x;
    this.redraw();
  }

  /** Draw a hidden function of the chosen process and observe it at five places. */
  #hidden() {
    const fine = Array.from({ length: 201 }, (_, i) => -2.5 + i / 40);
    this.hidden = { x: fine, y: functions([], fine, this.process, 1, freshSeed()), noise: this.process.noise };
    this.moreButton.disabled = false;
    this.set.points = [];
    this.#observe(5);
    this.#truth();
  }

  #observe(count) {
    const seed = freshSeed(), next = uniforms(seed), noise = normals(seed + 1, count), { x, y, noise: sigma } = this.hidden;
    const added = Array.from({ length: count }, (_, i) => {
      const at = Math.round(20 + 160 * next());
      return { x: x[at], y: Math.min(VIEW.y[1], Math.max(VIEW.y[0], y[at] + sigma * noise[i])) };
    });
    this.set.set([...this.set.points, ...added]);
  }

  #truth() {
    this.state.truth = this.truthTick.input.checked && this.hidden ? this.hidden : null;
    this.redraw();
  }

  #clear() {
    this.hidden = null;
    this.moreButton.disabled = true;
    this.set.set([]);
    this.#truth();
  }

  #animate(control) {
    this.moving = !this.moving;
    control.setAttribute("aria-pressed", String(this.moving));
    control.textContent = this.moving ? "Hold still" : "Animate";
    let before = performance.now();
    const frame = (now) => {
      if (!this.moving) return;
      if (!this.root?.hidden) {
        this.phase += Math.min(0.1, (now - before) / 1500);
        for (const panel of this.panels) if (!panel.asker.busy) panel.refresh(false);
      }
      before = now;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  #recompute() {
    for (const panel of this.panels) panel.refresh();
    this.redraw();
    const request = { points: this.set.points, places: PLACES, domain: this.domain };
    if (this.overlay !== "none") {
      const process = this.overlay === "kernel" ? { ...this.process } : null;
      this.overlayAsker.ask("overlay", "exactBands", { ...request, process }, (result) => {
        this.state.exact = this.overlay === "none" ? null : result;
        this.redraw();
      });
    }
    this.surpriseAsker.ask("surprise", "exactBands", { ...request, places: [], process: null }, ({ tail }) => this.#warn(tail));
  }

  /** Say where the networks leave what they were trained on. */
  #warn(tail) {
    const [low, high] = this.domain.interval, { points } = this.set;
    const outside = points.filter(({ x }) => x < low || x > high).length;
    const reasons = [];
    if (outside) reasons.push(`${outside === 1 ? "a point lies" : `${outside} points lie`} outside ${low} … ${high}`.replace("-", "−"));
    if (points.length > this.domain.max_context) reasons.push(`there are more than ${this.domain.max_context} points`);
    if (tail < 1e-3) reasons.push("no curve of the training kind is likely to pass through these points");
    this.warning.textContent = reasons.length ? `Outside what the networks were trained on: ${reasons.join("; ")}.` : "";
  }

  shown() {
    this.recompute();
  }
}
