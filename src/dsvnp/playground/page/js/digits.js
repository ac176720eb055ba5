// The tab of digits: a person paints some pixels, a network completes the picture.

import { Asker } from "./asking.js";
import { button, chips, choice, group, h, help, perFrame } from "./dom.js";
import { freshSeed, uniforms } from "./random.js";
import { DIGITS, raster } from "./strokes.js";
import { palette, rgb } from "./theme.js";

const SIDE = 28;
const MODELS = [["tnp", "TNP", "a transformer"], ["np", "NP", "a global latent"]];
const PARTS = {
  top: ["Its upper half", (i) => Math.floor(i / SIDE) < 14],
  left: ["Its left half", (i) => i % SIDE < 14],
  some: ["40 random pixels", (_, u) => u < 40 / 784],
  many: ["110 random pixels", (_, u) => u < 110 / 784],
};
const COUNT = 6;

export class Digits {
  ink = new Float64Array(SIDE * SIDE).fill(NaN); // −1 blank, 1 ink, NaN not known
  brush = "ink";
  cell = 14 * SIDE + 14;
  seed = 3;

  constructor(root, manifest, announce) {
    Object.assign(this, { announce, domain: manifest.domains.digits });
    this.networks = MODELS.filter(([name]) => manifest.networks[`digits-${name}`]);
    this.askers = Object.fromEntries(this.networks.map(([name]) => [name, new Asker(new URL(`weights/digits-${name}.safetensors`, document.baseURI).href)]));
    const order = uniforms(9);
    this.rank = Float64Array.from({ length: SIDE * SIDE }, () => order()); // which pixels are read where there are too many
    this.redraw = perFrame(() => this.#draw());
    this.recompute = perFrame(() => this.#recompute());
    root.append(this.#layout());
    this.#reveal(3, "top");
  }

  #layout() {
    const image = (name, label) => h("canvas", { class: "pixels", width: SIDE, height: SIDE, role: "img", "aria-label": label, "data-name": name });
    this.pad = h("canvas", { class: "pixels pad", width: SIDE, height: SIDE, tabindex: 0, role: "application", "aria-roledescription": "drawing pad", "aria-label": "Pixels that you know", "aria-describedby": "keys-digits" });
    this.#painting();
    [this.mean, this.std] = [image("mean", "The completed digit"), image("std", "Where the network is not sure")];
    this.samples = Array.from({ length: COUNT }, (_, i) => image("sample", `Possible digit ${i + 1}`));
    this.note = h("p", { class: "warning", role: "status" });
    this.time = h("span", { class: "time" });
    const panel = (title, note, ...children) => h("section", { class: "panel picture", "aria-label": title }, h("header", {}, h("h2", {}, title), h("span", { class: "note" }, note)), ...children);
    this.meanPanel = panel("Completed", "mean ink", this.mean, h("footer", {}, h("span"), this.time));
    this.meanPanel.dataset.model = "digits";
    const first = this.networks[0]?.[0];
    this.model = first;
    const models = chips("Network", Object.fromEntries(this.networks.map(([name, title]) => [name, title])), (name) => { this.model = name; this.recompute(); });
    models.set(first);
    const body = h("div", { class: "tab-body" },
      h("div", { class: "stage" },
        h("div", { class: "lead" }, help(
          "Paint some pixels on the left, ink or blank, and the network that has learned from handwritten digits guesses all the others: a neural process sees a picture as a function from a place to its ink.",
          "The second picture is its mean, the third shows in darker blue where it is not sure, and the row below shows whole digits that it considers possible.",
          "With few pixels the possible digits differ, with more they agree; a shape that is no digit at all is outside what it was trained on.",
        ), models), this.note,
        h("div", { class: "panels triple" }, panel("Your pixels", "paint here", this.pad, h("footer", {})), this.meanPanel, panel("Not sure", "standard deviation", this.std, h("footer", {}))),
        this.askers.np ? h("section", { class: "panel", "aria-label": "Possible digits" }, h("header", {}, h("h2", {}, "Possible digits"), h("span", { class: "note" }, "one per draw of NP's global latent z_G")), h("div", { class: "samples" }, ...this.samples)) : "",
        h("p", { id: "keys-digits", class: "hint" }, "Paint with mouse, finger or pen. Keyboard: arrows move the cell, Space paints it.")),
      h("div", { class: "controls" }, ...this.#controls()));
    return body;
  }

  #controls() {
    this.brushes = chips("Brush", { ink: "Ink", blank: "Blank", unknown: "Unknown" }, (name) => (this.brush = name));
    this.brushes.set("ink");
    const chosen = { digit: "random", part: "top" };
    return [
      group("Brush", this.brushes, h("div", { class: "row" }, button("Clear", () => { this.ink.fill(NaN); this.recompute(); }))),
      group("An example", choice("Digit", { random: "Any", ...Object.fromEntries(DIGITS.map((_, i) => [i, String(i)])) }, "random", (v) => (chosen.digit = v)),
        choice("Reveal", Object.fromEntries(Object.entries(PARTS).map(([key, [text]]) => [key, text])), "top", (v) => (chosen.part = v)),
        button("Show it", () => this.#reveal(chosen.digit === "random" ? Math.floor(10 * Math.random()) : Number(chosen.digit), chosen.part), { class: "primary" })),
      group("Possible digits", button("New draws", () => { this.seed = freshSeed(); this.recompute(); })),
    ];
  }

  #painting() {
    const { pad } = this;
    let last = null;
    const at = (event) => {
      const box = pad.getBoundingClientRect();
      return [((event.clientX - box.left) / box.width) * SIDE, ((event.clientY - box.top) / box.height) * SIDE];
    };
    pad.addEventListener("pointerdown", (event) => {
      if (!event.isPrimary || event.button !== 0) return;
      pad.setPointerCapture(event.pointerId);
      this.#stroke((last = at(event)), last);
    });
    pad.addEventListener("pointermove", (event) => {
      if (!last) return;
      const now = at(event);
      this.#stroke(last, now);
      last = now;
    });
    for (const end of ["pointerup", "pointercancel"]) pad.addEventListener(end, () => (last = null));
    pad.addEventListener("keydown", (event) => this.#key(event));
    for (const event of ["focus", "blur"]) pad.addEventListener(event, () => this.redraw());
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -SIDE, ArrowDown: SIDE }[event.key];
    if (step) this.cell = Math.min(SIDE * SIDE - 1, Math.max(0, this.cell + step));
    else if (event.key === " " || event.key === "Enter") this.#paint(this.cell);
    else return;
    event.preventDefault();
    const value = this.ink[this.cell], word = Number.isNaN(value) ? "unknown" : value > 0 ? "ink" : "blank";
    this.announce(`Row ${Math.floor(this.cell / SIDE) + 1}, column ${(this.cell % SIDE) + 1}: ${word}`);
    this.redraw();
  }

  #paint(cell) {
    this.ink[cell] = { ink: 1, blank: -1, unknown: NaN }[this.brush];
    this.recompute();
  }

  /** A stroke of the brush: a pen of ink, or something broader for the other two. */
  #stroke([ax, ay], [bx, by]) {
    const side = SIDE, line = [[[ax / side, ay / side], [bx / side + 1e-6, by / side]]];
    const covered = raster(line, side, this.brush === "ink" ? 0.75 : 1.6);
    covered.forEach((value, i) => {
      if (value <= 0.25) return;
      if (this.brush === "ink") this.ink[i] = Math.max(Number.isNaN(this.ink[i]) ? -1 : this.ink[i], 2 * value - 1);
      else this.ink[i] = this.brush === "blank" ? -1 : NaN;
    });
    this.recompute();
  }

  #reveal(digit, part) {
    const picture = raster(DIGITS[digit], SIDE), next = uniforms(freshSeed());
    this.ink = picture.map((value, i) => (PARTS[part][1](i, next()) ? 2 * value - 1 : NaN));
    this.recompute();
  }

  /** The pixels that the network reads: all, or as many as it was trained with. */
  #pixels() {
    const known = [...this.ink.keys()].filter((i) => !Number.isNaN(this.ink[i])).sort((a, b) => this.rank[a] - this.rank[b]);
    const read = known.slice(0, this.domain.max_context);
    this.note.textContent = known.length > read.length ? `The network was trained with at most ${read.length} pixels: it reads ${read.length} of your ${known.length}.` : "";
    return read.map((i) => ({ column: i % SIDE, row: Math.floor(i / SIDE), ink: this.ink[i] }));
  }

  #recompute() {
    this.redraw();
    if (!this.model) return;
    const request = { pixels: this.#pixels(), side: SIDE };
    this.askers[this.model].ask("completion", "completion", request, (result, ms) => {
      this.result = result;
      this.meanPanel.dataset.bandsMs = ms.toFixed(1);
      this.time.textContent = `${ms.toFixed(0)} ms`;
      this.redraw();
    });
    this.askers.np?.ask("pictures", "pictures", { ...request, count: COUNT, seed: this.seed }, (result) => {
      this.pictures = result;
      this.redraw();
    });
  }

  #draw() {
    this.#drawPad();
    if (this.result) {
      paint(this.mean, this.result.mean, grey);
      const [r, g, b] = palette().model.split(" ").map(Number);
      paint(this.std, this.result.std, (value) => [r, g, b, 255 * Math.min(1, value)]);
    }
    const size = SIDE * SIDE;
    if (this.pictures) this.samples.forEach((canvas, i) => paint(canvas, this.pictures.subarray(i * size, (i + 1) * size), grey));
  }

  #drawPad() {
    const [r, g, b] = palette().model.split(" ").map(Number);
    paint(this.pad, this.ink, (value, i) => (Number.isNaN(value) ? [r, g, b, (i + Math.floor(i / SIDE)) % 2 ? 34 : 48] : grey(value)));
    if (document.activeElement !== this.pad) return;
    const context = this.pad.getContext("2d");
    context.fillStyle = rgb("accent", 0.8);
    context.fillRect(this.cell % SIDE, Math.floor(this.cell / SIDE), 1, 1);
  }

  shown() {
    this.recompute();
  }
}

/** Dark ink on white paper. */
const grey = (value) => {
  const level = 255 * (1 - Math.min(1, Math.max(0, (value + 1) / 2)));
  return [level, level, level, 255];
};

function paint(canvas, values, colour) {
  const context = canvas.getContext("2d"), image = context.createImageData(SIDE, SIDE);
  values.forEach((value, i) => image.data.set(colour(value, i), 4 * i));
  context.putImageData(image, 0, 0);
}
