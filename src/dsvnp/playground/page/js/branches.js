// The tab of two branches: each point lies on one of two curves. z_G decides the curves, z_* which of them a point is on.

import { Asker } from "./asking.js";
import { button, chips, choice, group, h, help, perFrame, shown, slider, tick } from "./dom.js";
import { functions } from "./gp.js";
import { drawPoints } from "./panels.js";
import { Plot } from "./plot.js";
import { Editor, PointSet, pointTable } from "./points.js";
import { freshSeed, normals, uniforms } from "./random.js";
import { palette, rgb } from "./theme.js";

const VIEW = { x: [-2.2, 2.2], y: [-2.5, 2.5] };
const range = (count, [low, high]) => Array.from({ length: count }, (_, i) => low + ((high - low) * i) / (count - 1));
const PLACES = range(89, VIEW.x), ROWS = range(120, VIEW.y);
const COLOURS = ["model", "accent", "exact", "truth"];
const CENTRE = { kernel: "rbf", length: 0.8, scale: 0.5, noise: 0 }, GAP = { kernel: "rbf", length: 0.9, scale: 0.25, noise: 0 };
const MODELS = [["dsvtnp", "DSVTNP"], ["dsvnp", "DSVNP"]];
const MAP = { size: 25, reach: 2.5 };

export class Branches {
  seeds = { global: 3, local: 4 };
  frozen = { global: true, local: false };
  draws = 1;
  shared = false;
  showDensity = true;
  place = 0;
  playing = 0;

  constructor(root, manifest, announce) {
    this.domain = manifest.domains.branches;
    this.set = new PointSet(announce);
    this.#problem(5, 18);
    this.networks = MODELS.filter(([name]) => manifest.networks[`branches-${name}`]);
    this.redraw = perFrame(() => this.#draw());
    this.recompute = perFrame(() => this.#recompute());
    this.set.addEventListener("change", ({ detail }) => (detail === "points" ? this.recompute() : this.redraw()));
    root.append(this.#layout());
  }

  #layout() {
    this.canvas = h("canvas", { role: "application", "aria-roledescription": "plot with points", "aria-label": "Two branches", "aria-describedby": "keys-branches" });
    this.plot = new Plot(this.canvas, VIEW);
    new Editor(this.plot, this.set, (x) => this.#probe(x));
    this.map = h("canvas", { class: "map", width: MAP.size, height: MAP.size, role: "img", "aria-label": "What the local latent decides" });
    this.mapText = h("p", { class: "hint" });
    this.time = h("span", { class: "time" });
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
    for (const event of ["focus", "blur"]) this.canvas.addEventListener(event, () => this.redraw());
    const panel = h("section", { class: "panel", "data-model": "branches", "aria-label": "Two branches" },
      h("header", {}, (this.title = h("h2")), h("span", { class: "note" }, "a point's own latent chooses its branch")), this.canvas,
      h("footer", {}, h("span", {}, ""), this.time));
    this.panel = panel;
    const models = chips("Models", Object.fromEntries(this.networks), (name) => this.#choose(name));
    models.set(this.networks[0][0]);
    return h("div", { class: "tab-body" },
      h("div", { class: "stage" },
        h("div", { class: "lead" }, help(
          "Every observation lies on one of two hidden curves, and nothing says on which: the shade is the density that the network predicts, the small dots are observations it makes up.",
          "Freeze z_G and resample z_*: the two curves stay where they are while dots jump from one to the other; freeze z_* and resample z_G: each dot keeps its branch while the curves themselves move, most where there are no observations.",
          "The square shows the plane of z_* at one x, coloured by the y that it stands for.",
        ), models),
        h("div", { class: "panels single" }, panel),
        h("p", { id: "keys-branches", class: "hint" }, "Click adds a point, drag moves it, double click or a long press removes it; point at a place to see what z_* decides there.")),
      h("div", { class: "controls" }, ...this.#controls()));
  }

  #controls() {
    const play = button("Play", () => this.#play(play), { "aria-pressed": "false" });
    return [
      group("Latents", tick("Freeze z_G (the curves)", this.frozen.global, (on) => (this.frozen.global = on)),
        tick("Freeze z_* (the branch of each dot)", this.frozen.local, (on) => (this.frozen.local = on)),
        h("div", { class: "row" }, button("Resample", () => this.#resample(), { class: "primary" }), play),
        slider("Draws of z_G", { min: 1, max: 4, step: 1, value: this.draws, onchange: (v) => { this.draws = v; this.recompute(); } }),
        tick("The same z_* at every x", false, (on) => { this.shared = on; this.recompute(); }),
        tick("Density", true, (on) => { this.showDensity = on; this.redraw(); })),
      (this.mapGroup = group("What z_* decides", this.map, this.mapText)),
      group("Points", h("div", { class: "row" }, button("New problem", () => this.#problem(freshSeed(), 18)), button("Clear", () => { this.truth = null; this.set.set([]); })),
        choice("Observations", { 4: "4", 10: "10", 18: "18", 30: "30" }, "18", (value) => this.#problem(this.problemSeed, Number(value))),
        (this.truthTick = tick("Show the hidden curves", false, () => this.redraw())), pointTable(this.set)),
    ];
  }

  /** Take a network; each has workers of its own. */
  #choose(name) {
    const url = new URL(`weights/branches-${name}.safetensors`, document.baseURI).href;
    this.byName ??= {};
    this.askers = this.byName[name] ??= { draws: new Asker(url), density: new Asker(url) };
    this.title.textContent = Object.fromEntries(MODELS)[name];
    this.density = this.result = null;
    this.recompute();
  }

  /** Draw two curves and points on them. */
  #problem(seed, count) {
    this.problemSeed = seed;
    const fine = range(89, VIEW.x), centre = functions([], fine, CENTRE, 1, seed), gap = functions([], fine, GAP, 1, seed + 1);
    const half = gap.map((g) => Math.abs(0.7 + g)), next = uniforms(seed + 2), noise = normals(seed + 3, count);
    this.truth = { x: fine, upper: centre.map((c, i) => c + half[i]), lower: centre.map((c, i) => c - half[i]) };
    const points = Array.from({ length: count }, (_, i) => {
      const at = Math.round(4 + 80 * next()), branch = next() < 0.5 ? this.truth.upper : this.truth.lower;
      return { x: fine[at], y: branch[at] + this.domain.noise * noise[i] };
    });
    this.set.set(points);
  }

  #resample() {
    for (const name of ["global", "local"]) if (!this.frozen[name]) this.seeds[name] = freshSeed();
    this.recompute();
  }

  #play(control) {
    clearInterval(this.playing);
    this.playing = this.playing ? 0 : setInterval(() => !this.root?.hidden && this.#resample(), 700);
    control.setAttribute("aria-pressed", String(Boolean(this.playing)));
    control.textContent = this.playing ? "Stop" : "Play";
  }

  #probe(x) {
    if (x === null || Math.abs(x - this.place) < 0.02) return;
    this.place = x;
    this.#askMap();
    this.redraw();
  }

  #askMap() {
    this.askers.density.ask("map", "localMap", { points: this.set.points, place: this.place, ...MAP }, (result) => this.#drawMap(result));
  }

  #recompute() {
    const request = { points: this.set.points, places: PLACES }, { askers, draws: K, shared } = this;
    const seeds = { seedGlobal: this.seeds.global, seedLocal: this.seeds.local };
    askers.draws.ask("draws", "components", { ...request, ...seeds, K, S: shared ? 6 : 4, shared }, (result, ms) => {
      if (askers !== this.askers) return; // another network was chosen meanwhile
      this.result = { ...result, shared, K };
      this.panel.dataset.bandsMs = ms.toFixed(1);
      this.time.textContent = `${ms.toFixed(0)} ms`;
      this.redraw();
    });
    askers.density.ask("density", "components", { ...request, K: 8, S: 32, seedGlobal: 1, seedLocal: 2, shared: true }, (result) => {
      if (askers !== this.askers) return;
      this.density = shade(result, PLACES.length);
      this.redraw();
    });
    this.#askMap();
  }

  #draw() {
    const { plot } = this;
    if (!plot.fit()) return;
    plot.clear();
    plot.outside(this.domain.interval);
    if (this.density && this.showDensity) this.#drawDensity();
    if (this.truth && this.truthTick.input.checked)
      for (const name of ["upper", "lower"]) plot.line(this.truth.x, this.truth[name], { colour: rgb("truth"), dash: [1, 4] });
    if (this.result) this.#drawDraws();
    plot.upright(this.place, rgb("muted"));
    drawPoints(plot, this.set, this.domain.interval, document.activeElement === this.canvas);
    plot.done();
  }

  #drawDraws() {
    const T = PLACES.length, { mean, shared, K } = this.result, S = mean.length / (K * T);
    for (let k = 0; k < K; k++)
      for (let s = 0; s < S; s++) {
        const values = mean.subarray((k * S + s) * T, (k * S + s + 1) * T), colour = rgb(COLOURS[k], 0.8);
        if (shared) this.plot.line(PLACES, values, { colour, width: 1.2 });
        else PLACES.forEach((x, t) => this.plot.dot(x, values[t], { colour, radius: 1.7 }));
      }
  }

  /** The predicted density as a picture behind the plot. */
  #drawDensity() {
    const T = PLACES.length, R = ROWS.length, small = (this.small ??= h("canvas", { width: T, height: R }));
    const context = small.getContext("2d"), image = context.createImageData(T, R);
    const [r, g, b] = palette().model.split(" ").map(Number);
    for (let i = 0; i < T * R; i++) {
      const row = R - 1 - Math.floor(i / T), value = this.density[(i % T) * R + row];
      image.data.set([r, g, b, 255 * 0.75 * (1 - Math.exp(-0.9 * value))], 4 * i);
    }
    context.putImageData(image, 0, 0);
    const { plot } = this, [left, right] = VIEW.x, [low, high] = VIEW.y;
    plot.context.drawImage(small, plot.px(left), plot.py(high), plot.px(right) - plot.px(left), plot.py(low) - plot.py(high));
  }

  /** The plane of z_*; a latent of many dimensions has no such picture. */
  #drawMap({ values, dimensions }) {
    this.mapGroup.hidden = dimensions > 2;
    const context = this.map.getContext("2d"), image = context.createImageData(MAP.size, MAP.size);
    const low = Math.min(...values), high = Math.max(...values), span = Math.max(0.05, high - low);
    const [from, to] = ["accent", "model"].map((name) => palette()[name].split(" ").map(Number));
    values.forEach((value, i) => {
      const share = (value - low) / span;
      image.data.set([0, 1, 2].map((c) => from[c] + share * (to[c] - from[c])).concat(255), 4 * i);
    });
    context.putImageData(image, 0, 0);
    this.mapText.textContent = `At x = ${shown(this.place)}: from y = ${shown(low)} (pink) to ${shown(high)} (blue).`;
  }

  shown() {
    this.recompute();
  }
}

/** Density of a mixture on the rows of the plot, [T, rows]. */
function shade({ mean, scale }, T) {
  const R = ROWS.length, count = mean.length / T, out = new Float64Array(T * R), step = ROWS[1] - ROWS[0];
  for (let c = 0; c < count; c++)
    for (let t = 0; t < T; t++) {
      const m = mean[c * T + t], s = Math.max(scale[c * T + t], step / 2), factor = 1 / (count * s * Math.sqrt(2 * Math.PI));
      const first = Math.max(0, Math.floor((m - 4 * s - ROWS[0]) / step)), last = Math.min(R - 1, Math.ceil((m + 4 * s - ROWS[0]) / step));
      for (let r = first; r <= last; r++) out[t * R + r] += factor * Math.exp(-0.5 * ((ROWS[r] - m) / s) ** 2);
    }
  return out;
}
