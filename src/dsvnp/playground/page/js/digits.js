// The tab of digits: a person paints some pixels, a network completes the picture.

import { Asker } from "./asking.js";
import { button, chips, choice, group, h, panel, perFrame, row, tabBody } from "./dom.js";
import { Pad, grey } from "./pad.js";
import { freshSeed, uniforms } from "./random.js";
import { channels, paint } from "./shading.js";
import { DIGITS, raster } from "./strokes.js";

const SIDE = 28;
const COUNT = 6; // possible digits that are shown
const MODELS = { tnp: "TNP", np: "NP" };
const PARTS = {
  top: ["Its upper half", (i) => Math.floor(i / SIDE) < 14],
  left: ["Its left half", (i) => i % SIDE < 14],
  some: ["40 random pixels", (_, u) => u < 40 / 784],
  many: ["110 random pixels", (_, u) => u < 110 / 784],
};

export class Digits {
  seed = 3;

  constructor(root, manifest, announce) {
    this.domain = manifest.domains.digits;
    const names = Object.keys(MODELS).filter((name) => manifest.networks[`digits-${name}`]);
    const url = (name) => new URL(`weights/digits-${name}.safetensors`, document.baseURI).href;
    this.askers = Object.fromEntries(names.map((name) => [name, new Asker(url(name))]));
    this.model = names[0];
    this.redraw = perFrame(() => this.#draw());
    this.recompute = perFrame(() => this.#recompute());
    this.pad = new Pad(SIDE, this.recompute, announce);
    const order = uniforms(9);
    this.rank = Float64Array.from({ length: SIDE * SIDE }, () => order()); // which pixels are read first
    root.append(this.#layout(names));
    this.#reveal(3, "many");
  }

  #layout(names) {
    const image = (label) =>
      h("canvas", { class: "pixels", width: SIDE, height: SIDE, role: "img", "aria-label": label });
    this.mean = image("The completed digit");
    this.std = image("Where the network is not sure");
    this.samples = Array.from({ length: COUNT }, (_, i) => image(`Possible digit ${i + 1}`));
    this.note = h("p", { class: "hint", role: "status" });
    this.time = h("span", { class: "time" });
    this.meanPanel = panel(
      "Completed",
      "mean ink",
      "digits",
      this.mean,
      h("footer", {}, h("span"), this.time),
    );
    const models = chips(
      "Network",
      Object.fromEntries(names.map((name) => [name, MODELS[name]])),
      (name) => {
        this.model = name;
        this.recompute();
      },
      this.model,
    );
    const kinds = { ink: "Ink", blank: "Blank", unknown: "Unknown" };
    const brushes = chips("Brush", kinds, (name) => (this.pad.brush = name), "ink");
    const three = [
      panel("Your pixels", "paint here", "pad", this.pad.canvas, h("footer", {}, brushes)),
      this.meanPanel,
      panel("Not sure", "standard deviation", "std", this.std, h("footer")),
    ];
    const possible = panel(
      "Possible digits",
      "one per draw of NP's global latent z_G",
      "possible",
      h("div", { class: "samples" }, ...this.samples),
    );
    possible.hidden = !this.askers.np;
    const stage = [this.note, h("div", { class: "panels triple" }, ...three), possible];
    return tabBody("digits", models, stage, this.#controls());
  }

  #controls() {
    const digits = { random: "Any", ...Object.fromEntries(DIGITS.map((_, i) => [i, String(i)])) };
    const parts = Object.fromEntries(Object.entries(PARTS).map(([key, [text]]) => [key, text]));
    const chosen = { digit: "random", part: "many" };
    const digit = () => (chosen.digit === "random" ? Math.floor(10 * Math.random()) : Number(chosen.digit));
    return [
      group(
        "An example",
        choice("Digit", digits, "random", (value) => (chosen.digit = value)),
        choice("Reveal", parts, "many", (value) => (chosen.part = value)),
        row(
          button("Show it", () => this.#reveal(digit(), chosen.part), { class: "primary" }),
          button("Clear", () => this.pad.clear()),
        ),
      ),
      group(
        "Possible digits",
        button("New draws", () => {
          this.seed = freshSeed();
          this.recompute();
        }),
      ),
    ];
  }

  /** Show some pixels of a digit of our own. */
  #reveal(digit, part) {
    const next = uniforms(freshSeed());
    const shown = (value, i) => (PARTS[part][1](i, next()) ? 2 * value - 1 : NaN);
    this.pad.set(raster(DIGITS[digit], SIDE).map(shown));
  }

  /** The pixels that the network reads: all, or as many as it was trained with. */
  #pixels() {
    const { ink } = this.pad;
    const known = [...ink.keys()].filter((i) => !Number.isNaN(ink[i]));
    const read = known.sort((a, b) => this.rank[a] - this.rank[b]).slice(0, this.domain.max_context);
    const enough = "as many as it was trained with";
    const some = known.length > read.length ? `${read.length} of your ${known.length} pixels, ${enough}` : "";
    this.note.textContent = `The network reads ${some || `your ${known.length} pixels`}.`;
    return read.map((i) => ({ column: i % SIDE, row: Math.floor(i / SIDE), ink: ink[i] }));
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
    this.pad.draw();
    if (this.result) {
      const { mean, std } = this.result;
      const colour = channels("model");
      paint(this.mean, (i) => grey(mean[i]));
      paint(this.std, (i) => [...colour, 255 * Math.min(1, std[i])]);
    }
    if (!this.pictures) return;
    this.samples.forEach((canvas, c) => paint(canvas, (i) => grey(this.pictures[c * SIDE * SIDE + i])));
  }

  shown() {
    this.recompute();
  }
}
