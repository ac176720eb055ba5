// The tab of curves: points that a person places, what each model makes of them, and the exact answer.

import { Asker } from "./asking.js";
import { button, chips, choice, group, h, perFrame, row, slider, tabBody, tick } from "./dom.js";
import { PLACES, Panel, VIEW } from "./panels.js";
import { PointSet, pointTable } from "./points.js";
import { HiddenCurve } from "./problems.js";
import { freshSeed } from "./random.js";

const MODELS = [
  ["cnp", "CNP", "one mean, no latent"],
  ["np", "NP", "a global latent"],
  ["attnnp", "AttnNP", "a global latent and attention"],
  ["dsvnp", "DSVNP", "a global and a local latent"],
  ["tnp", "TNP", "a transformer, no latent"],
  ["dsvtnp", "DSVTNP", "a transformer with both latents"],
];
const EXACT = ["exact", "Exact Bayes", "the Gaussian process itself"];
const START = [
  [-1.6, -0.6],
  [-1.1, 0.5],
  [-0.5, 1.0],
  [0.4, -0.4],
  [0.7, -0.9],
].map(([x, y]) => ({ x, y }));
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
      ...networks.map(([name, title, note]) =>
        this.#panel(name, title, note, `weights/curves-${name}.safetensors`, ["bands", "draws"]),
      ),
      this.#panel(...EXACT, null, ["exactBands", "exactDraws"]),
    ];
    this.asker = new Asker();
    this.redraw = perFrame(() => this.panels.forEach((panel) => panel.draw()));
    this.recompute = perFrame(() => this.#recompute());
    this.set.addEventListener("change", ({ detail }) =>
      detail === "points" ? this.recompute() : this.redraw(),
    );
    root.append(this.#layout());
  }

  #panel(name, title, note, path, jobs) {
    const url = path && new URL(path, document.baseURI).href;
    return new Panel({ name, title, note, url, jobs }, this.set, this.state);
  }

  #layout() {
    this.warning = h("p", { class: "warning", role: "status" });
    this.grid = h("div", { class: "panels" }, ...this.panels.map((panel) => panel.element));
    const names = Object.fromEntries(this.panels.map(({ model }) => [model.name, model.title]));
    const phone = matchMedia("(max-width: 32rem)").matches; // which has room for one panel
    const first = phone && names.tnp ? "tnp" : "all";
    const models = chips("Models", { all: "All", ...names }, (view) => this.#show(view), first);
    this.#show(first);
    const key = (name, text) => h("li", { class: `key ${name}` }, text);
    const legend = h(
      "ul",
      { class: "legend", "aria-label": "Legend" },
      key("mean", "mean"),
      key("epistemic", "not known yet (epistemic)"),
      key("aleatoric", "with noise (aleatoric)"),
      key("function", "functions drawn"),
      key("exact", "exact answer"),
    );
    return tabBody("curves", models, [legend, this.warning, this.grid], this.#controls());
  }

  #controls() {
    this.truthTick = tick("Show the hidden function", false, () => this.#truth());
    this.moreButton = button("One more point", () => this.#observe(1), { disabled: true });
    const animate = button("Animate", () => this.#animate(animate), { "aria-pressed": "false" });
    return [
      group(
        "Show",
        tick("95 % intervals", true, (on) => this.#set({ showBands: on })),
        tick("Functions", true, (on) => this.#set({ showFunctions: on })),
        row(
          animate,
          button("New functions", () => this.#reseed()),
        ),
      ),
      group("Exact answer", ...this.#processControls()),
      group(
        "Points",
        row(
          button("Draw a function", () => this.#draw(), { class: "primary" }),
          this.moreButton,
          button("Clear", () => this.#clear()),
        ),
        this.truthTick,
        pointTable(this.set),
      ),
    ];
  }

  /** What is overlaid, and the process that functions are drawn from. */
  #processControls() {
    const { length: start, period: wave } = this.process;
    const text = (value) => value.toFixed(2);
    const scale = (name, min, max, value) => ({
      ...{ min, max, step: 0.05, value, text },
      onchange: (v) => this.#change({ [name]: v }),
    });
    const length = slider("Length ℓ", scale("length", 0.2, 1.4, start));
    const period = slider("Period", scale("period", 0.8, 2, wave));
    period.hidden = true;
    const kernel = choice("Kernel", KERNEL_NAMES, "rbf", (value) => {
      const usual = value === "periodic" ? 1 : 0.5;
      period.hidden = value !== "periodic";
      length.set(usual);
      this.#change({ kernel: value, length: usual });
    });
    const levels = Object.fromEntries(this.domain.noise.map((value) => [value, String(value)]));
    const noise = choice("Noise σ", levels, "0.05", (value) => this.#change({ noise: Number(value) }));
    const overlays = { average: "All kernels", kernel: "Kernel below", none: "None" };
    const overlay = choice("Overlay", overlays, this.overlay, (value) => this.#overlay(value));
    return [overlay, kernel, length, period, noise];
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
  #draw() {
    this.hidden = new HiddenCurve(this.process, VIEW);
    this.moreButton.disabled = false;
    this.set.points = [];
    this.#observe(5);
    this.#truth();
  }

  #observe(count) {
    this.set.set([...this.set.points, ...this.hidden.observe(count)]);
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
    const { overlay } = this;
    const request = { points: this.set.points, places: PLACES, domain: this.domain };
    const process = overlay === "kernel" ? { ...this.process } : null;
    if (overlay !== "none")
      this.asker.ask("overlay", "exactBands", { ...request, process }, (result) => {
        this.state.exact = this.overlay === overlay ? result : null;
        if (overlay === "average") this.#warn(result.tail);
        this.redraw();
      });
    if (overlay !== "average")
      this.asker.ask("surprise", "exactBands", { ...request, places: [] }, ({ tail }) => this.#warn(tail));
  }

  /** Say where the networks leave what they were trained on. */
  #warn(tail) {
    const [low, high] = this.domain.interval;
    const { points } = this.set;
    const outside = points.filter(({ x }) => x < low || x > high).length;
    const reasons = [];
    if (outside) {
      const who = outside === 1 ? "a point lies" : `${outside} points lie`;
      reasons.push(`${who} outside ${low} … ${high}`.replace("-", "−"));
    }
    if (points.length > this.domain.max_context)
      reasons.push(`there are more than ${this.domain.max_context} points`);
    if (tail < 1e-3) reasons.push("no curve of the training kind is likely to pass through these points");
    const all = `Outside what the networks were trained on: ${reasons.join("; ")}.`;
    this.warning.textContent = reasons.length ? all : "";
  }

  shown() {
    this.recompute();
  }
}
