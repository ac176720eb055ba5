// The tab of two branches: each point lies on one of two curves. z_G decides the curves, z_* which of them a point is on.

import { Asker } from "./asking.js";
import {
  button,
  chips,
  choice,
  group,
  h,
  panel,
  perFrame,
  row,
  shown,
  slider,
  tabBody,
  tick,
} from "./dom.js";
import { drawPoints } from "./panels.js";
import { Plot } from "./plot.js";
import { Editor, PointSet, pointTable } from "./points.js";
import { twoBranches } from "./problems.js";
import { freshSeed } from "./random.js";
import { density, paintDensity, paintScale, range } from "./shading.js";
import { rgb } from "./theme.js";

const VIEW = { x: [-2.2, 2.2], y: [-2.5, 2.5] };
const PLACES = range(89, VIEW.x);
const ROWS = range(120, VIEW.y);
const COLOURS = ["model", "accent", "exact", "truth"];
const MODELS = { dsvtnp: "DSVTNP", dsvnp: "DSVNP" };
const MAP = { size: 25, reach: 2.5 };

export class Branches {
  seeds = { global: 3, local: 4 };
  frozen = { global: true, local: false };
  draws = 1;
  shared = false;
  showDensity = true;
  place = 0;
  count = 18;
  playing = 0;

  constructor(root, manifest, announce) {
    this.domain = manifest.domains.branches;
    this.names = Object.keys(MODELS).filter((name) => manifest.networks[`branches-${name}`]);
    this.set = new PointSet(announce);
    this.redraw = perFrame(() => this.#draw());
    this.recompute = perFrame(() => this.#recompute());
    root.append(this.#layout());
    this.#choose(this.names[0]);
    this.#problem(5);
    this.set.addEventListener("change", ({ detail }) =>
      detail === "points" ? this.recompute() : this.redraw(),
    );
  }

  #layout() {
    const label = { "aria-roledescription": "plot with points", "aria-label": "Two branches" };
    this.canvas = h("canvas", { role: "application", ...label, "aria-describedby": "keys-branches" });
    this.plot = new Plot(this.canvas, VIEW);
    new Editor(this.plot, this.set, (x) => this.#probe(x));
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
    for (const event of ["focus", "blur"]) this.canvas.addEventListener(event, () => this.redraw());
    this.map = h("canvas", { class: "map", width: MAP.size, height: MAP.size, role: "img" });
    this.map.setAttribute("aria-label", "What the local latent decides");
    this.mapText = h("p", { class: "hint" });
    this.picture = h("canvas", { width: PLACES.length, height: ROWS.length }); // of the density
    this.time = h("span", { class: "time" });
    const foot = h("footer", {}, h("span"), this.time);
    this.panel = panel(
      "Two branches",
      "a point's own latent chooses its branch",
      "branches",
      this.canvas,
      foot,
    );
    const options = Object.fromEntries(this.names.map((name) => [name, MODELS[name]]));
    const models = chips("Models", options, (name) => this.#choose(name), this.names[0]);
    return tabBody("branches", models, [h("div", { class: "panels single" }, this.panel)], this.#controls());
  }

  #controls() {
    const play = button("Play", () => this.#play(play), { "aria-pressed": "false" });
    const change = (name, then) => (value) => {
      this[name] = value;
      then();
    };
    const draws = { min: 1, max: 4, step: 1, value: this.draws, onchange: change("draws", this.recompute) };
    this.truthTick = tick("Show the hidden curves", false, () => this.redraw());
    this.mapGroup = group("What z_* decides", this.map, this.mapText);
    const counts = { 4: "4", 10: "10", 18: "18", 30: "30" };
    return [
      group(
        "Latents",
        tick("Freeze z_G (the curves)", this.frozen.global, (on) => (this.frozen.global = on)),
        tick("Freeze z_* (the branch of each dot)", this.frozen.local, (on) => (this.frozen.local = on)),
        row(
          button("Resample", () => this.#resample(), { class: "primary" }),
          play,
        ),
        slider("z_G draws", draws),
        tick("The same z_* at every x", false, change("shared", this.recompute)),
        tick("Density", true, change("showDensity", this.redraw)),
      ),
      this.mapGroup,
      group(
        "Points",
        row(
          button("New problem", () => this.#problem(freshSeed())),
          button("Clear", () => this.set.set([])),
        ),
        choice("Number", counts, String(this.count), (value) => this.#problem(this.seed, Number(value))),
        this.truthTick,
        pointTable(this.set),
      ),
    ];
  }

  /** Take a network; each has workers of its own. */
  #choose(name) {
    const url = new URL(`weights/branches-${name}.safetensors`, document.baseURI).href;
    this.byName ??= {};
    this.askers = this.byName[name] ??= { draws: new Asker(url), density: new Asker(url) };
    this.density = this.result = null;
    this.recompute();
  }

  #problem(seed, count = this.count) {
    Object.assign(this, { seed, count });
    this.truth = twoBranches(seed, count, this.domain.noise, VIEW);
    this.set.set(this.truth.points);
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
    this.askers.density.ask(
      "map",
      "localMap",
      { points: this.set.points, place: this.place, ...MAP },
      (result) => this.#drawMap(result),
    );
  }

  #recompute() {
    const request = { points: this.set.points, places: PLACES },
      { askers, draws: K, shared } = this;
    const seeds = { seedGlobal: this.seeds.global, seedLocal: this.seeds.local };
    askers.draws.ask(
      "draws",
      "components",
      { ...request, ...seeds, K, S: shared ? 6 : 4, shared },
      (result, ms) => {
        if (askers !== this.askers) return; // another network was chosen meanwhile
        this.result = { ...result, shared, K };
        this.panel.dataset.bandsMs = ms.toFixed(1);
        this.time.textContent = `${ms.toFixed(0)} ms`;
        this.redraw();
      },
    );
    askers.density.ask(
      "density",
      "components",
      { ...request, K: 8, S: 32, seedGlobal: 1, seedLocal: 2, shared: true },
      (result) => {
        if (askers !== this.askers) return;
        this.density = density(result, PLACES.length, ROWS);
        this.redraw();
      },
    );
    this.#askMap();
  }

  #draw() {
    const { plot } = this;
    if (!plot.fit()) return;
    plot.clear();
    plot.outside(this.domain.interval);
    if (this.density && this.showDensity) this.#drawDensity();
    if (this.truthTick.input.checked)
      for (const name of ["upper", "lower"])
        plot.line(this.truth.x, this.truth[name], { colour: rgb("truth"), dash: [1, 4] });
    if (this.result) this.#drawDraws();
    plot.upright(this.place, rgb("muted"));
    drawPoints(plot, this.set, this.domain.interval, document.activeElement === this.canvas);
    plot.done();
  }

  #drawDraws() {
    const T = PLACES.length,
      { mean, shared, K } = this.result,
      S = mean.length / (K * T);
    for (let k = 0; k < K; k++)
      for (let s = 0; s < S; s++) {
        const values = mean.subarray((k * S + s) * T, (k * S + s + 1) * T),
          colour = rgb(COLOURS[k], 0.8);
        if (shared) this.plot.line(PLACES, values, { colour, width: 1.2 });
        else PLACES.forEach((x, t) => this.plot.dot(x, values[t], { colour, radius: 1.7 }));
      }
  }

  #drawDensity() {
    paintDensity(this.picture, this.density);
    const { plot } = this;
    const [left, right] = VIEW.x.map((x) => plot.px(x));
    const [bottom, top] = VIEW.y.map((y) => plot.py(y));
    plot.context.drawImage(this.picture, left, top, right - left, bottom - top);
  }

  /** The plane of z_*; a latent of many dimensions has no such picture. */
  #drawMap({ values, dimensions }) {
    this.mapGroup.hidden = dimensions > 2;
    const [low, high] = paintScale(this.map, values).map((value) => shown(value));
    this.mapText.textContent = `At x = ${shown(this.place)}: from y = ${low} (pink) to ${high} (blue).`;
  }

  shown() {
    this.recompute();
  }
}
