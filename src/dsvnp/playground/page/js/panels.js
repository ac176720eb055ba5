// Panels: one per model on the tab of curves, each with a worker of its own: bands first, then functions.

import { Asker } from "./asking.js";
import { h, shown } from "./dom.js";
import { Plot } from "./plot.js";
import { Editor } from "./points.js";
import { rgb } from "./theme.js";

export const VIEW = { x: [-2.5, 2.5], y: [-3, 3] };
export const PLACES = Array.from({ length: 121 }, (_, i) => VIEW.x[0] + ((VIEW.x[1] - VIEW.x[0]) * i) / 120);
const WIDE = 1.96; // standard deviations of a 95 % interval

/** Draw points of a set; those outside an interval get a ring of warning. */
export function drawPoints(plot, set, interval, focused) {
  set.points.forEach(({ x, y }, i) => {
    const strange = x < interval[0] || x > interval[1];
    const ring = i === set.selected ? rgb("accent") : strange ? rgb("warn") : null;
    plot.dot(x, y, { colour: rgb("ink"), edge: rgb("surface"), ring });
  });
  if (focused && set.selected < 0) plot.cross(set.cross.x, set.cross.y, rgb("accent"));
}

export class Panel {
  bands = null;
  functions = null;
  probe = null;

  /**
   * @param model { name, title, note, url, jobs: [bands, draws] }
   * @param set the points
   * @param state what the tab shows: interval, show…, truth, exact, request(job)
   */
  constructor(model, set, state) {
    Object.assign(this, { model, set, state });
    this.canvas = h("canvas", {
      role: "application",
      "aria-roledescription": "plot with points",
      "aria-label": `${model.title}: points and what the model predicts`,
      "aria-describedby": "keys-curves",
    });
    this.readout = h("output", { class: "readout" });
    this.time = h("span", { class: "time" });
    this.element = h(
      "section",
      { class: "panel", "aria-label": model.title, "data-model": model.name },
      h("header", {}, h("h2", {}, model.title), h("span", { class: "note" }, model.note)),
      this.canvas,
      h("footer", {}, this.readout, this.time),
    );
    this.plot = new Plot(this.canvas, VIEW);
    this.asker = new Asker(model.url);
    new Editor(this.plot, set, (x) => state.pointAt(x));
    for (const event of ["focus", "blur"]) this.canvas.addEventListener(event, () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  get visible() {
    return !this.element.hidden && this.canvas.clientWidth > 0;
  }

  /** Ask for bands and, if they are shown, for functions. */
  refresh(bands = true) {
    if (!this.visible) return;
    const { jobs } = this.model,
      shared = { points: this.set.points, places: PLACES, ...this.state.request() };
    if (bands)
      this.asker.ask("bands", jobs[0], shared, (result, ms) => {
        this.bands = result;
        this.element.dataset.bandsMs = ms.toFixed(1);
        if (this.warm) this.time.textContent = `${ms.toFixed(0)} ms`; // the first answer compiles the code as well
        this.warm = true;
        this.draw();
      });
    if (!this.state.showFunctions) return;
    this.asker.ask("functions", jobs[1], { ...shared, ...this.state.functionRequest() }, (result, ms) => {
      this.functions = result;
      this.element.dataset.functionsMs = ms.toFixed(1);
      this.draw();
    });
  }

  draw() {
    const { plot, state, set } = this;
    if (!this.visible || !plot.fit()) return;
    plot.clear();
    plot.outside(state.interval);
    if (this.bands && state.showBands) this.#bands();
    if (this.functions && state.showFunctions) this.#functions();
    if (state.truth)
      plot.line(state.truth.x, state.truth.y, { colour: rgb("truth"), width: 1.5, dash: [1, 4] });
    if (state.exact && state.exact !== this.bands) this.#outline(state.exact);
    if (this.bands) plot.line(PLACES, this.bands.mean, { colour: rgb("model"), width: 2.5 });
    plot.outside(state.interval, "not trained here");
    drawPoints(plot, set, state.interval, document.activeElement === this.canvas);
    if (!set.points.length) plot.say("Click to add a point");
    if (state.probe !== null) plot.upright(state.probe, rgb("muted"));
    plot.done();
    this.#read();
  }

  #bands() {
    const { mean, epistemic, aleatoric } = this.bands,
      { plot } = this;
    const edge = (sign, variance) => mean.map((m, i) => m + sign * WIDE * Math.sqrt(variance(i)));
    const total = (i) => epistemic[i] + aleatoric[i];
    plot.band(PLACES, edge(-1, total), edge(1, total), rgb("noise", 0.28));
    plot.band(
      PLACES,
      edge(-1, (i) => epistemic[i]),
      edge(1, (i) => epistemic[i]),
      rgb("model", 0.3),
    );
  }

  #functions() {
    const T = PLACES.length;
    for (let c = 0; c * T < this.functions.length; c++)
      this.plot.line(PLACES, this.functions.subarray(c * T, (c + 1) * T), {
        colour: rgb("model", 0.75),
        width: 1,
      });
  }

  #outline({ mean, epistemic, aleatoric }) {
    const edge = (sign) => mean.map((m, i) => m + sign * WIDE * Math.sqrt(epistemic[i] + aleatoric[i]));
    const style = { colour: rgb("exact"), dash: [6, 4] };
    this.plot.line(PLACES, mean, { ...style, width: 2 });
    for (const sign of [-1, 1]) this.plot.line(PLACES, edge(sign), { ...style, width: 1.2 });
  }

  #read() {
    const { probe } = this.state;
    if (probe === null || !this.bands) return (this.readout.textContent = "");
    const i = Math.round(((probe - VIEW.x[0]) / (VIEW.x[1] - VIEW.x[0])) * (PLACES.length - 1));
    const { mean, epistemic, aleatoric } = this.bands,
      half = WIDE * Math.sqrt(epistemic[i] + aleatoric[i]);
    this.readout.textContent = `at ${shown(probe)}: ${shown(mean[i])} ± ${half.toFixed(2)}`;
  }
}
