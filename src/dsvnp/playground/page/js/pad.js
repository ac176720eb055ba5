// The pad: pixels that a person paints as ink, as blank or as not known, with mouse, touch, pen or keyboard.

import { h } from "./dom.js";
import { channels, paint } from "./shading.js";
import { raster } from "./strokes.js";
import { rgb } from "./theme.js";

const PEN = { ink: 0.75, blank: 1.6, unknown: 1.6 }; // radius in pixels
const VALUE = { ink: 1, blank: -1, unknown: NaN };

/** Dark ink on white paper, of a value from −1 to 1. */
export function grey(value) {
  const level = 255 * (1 - Math.min(1, Math.max(0, (value + 1) / 2)));
  return [level, level, level, 255];
}

export class Pad {
  brush = "ink";

  /**
   * @param side pixels of a side
   * @param changed called after each change
   * @param announce tells a screen reader
   */
  constructor(side, changed, announce) {
    Object.assign(this, { side, changed, announce });
    this.ink = new Float64Array(side * side).fill(NaN); // −1 blank, 1 ink, NaN not known
    this.cell = (side >> 1) * side + (side >> 1); // where the keyboard paints
    this.canvas = h("canvas", {
      class: "pixels pad",
      width: side,
      height: side,
      tabindex: 0,
      role: "application",
      "aria-roledescription": "drawing pad",
      "aria-label": "Pixels that you know",
      "aria-describedby": "keys-digits",
    });
    this.#listen();
  }

  set(ink) {
    this.ink = ink;
    this.changed();
  }

  clear() {
    this.set(new Float64Array(this.side ** 2).fill(NaN));
  }

  #listen() {
    const { canvas } = this;
    let last = null;
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (!event.isPrimary || event.button !== 0) return;
      canvas.setPointerCapture(event.pointerId);
      last = at(event);
      this.#stroke(last, last);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!last) return;
      const now = at(event);
      this.#stroke(last, now);
      last = now;
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    for (const event of ["focus", "blur"]) canvas.addEventListener(event, () => this.draw());
  }

  #stroke(from, to) {
    raster([[from, to]], this.side, PEN[this.brush]).forEach((covered, i) => {
      if (covered <= 0.25) return;
      const before = Number.isNaN(this.ink[i]) ? -1 : this.ink[i];
      this.ink[i] = this.brush === "ink" ? Math.max(before, 2 * covered - 1) : VALUE[this.brush];
    });
    this.changed();
  }

  #key(event) {
    const { side } = this;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -side, ArrowDown: side }[event.key];
    if (step) this.cell = Math.min(side * side - 1, Math.max(0, this.cell + step));
    else if (event.key === " " || event.key === "Enter") {
      this.ink[this.cell] = VALUE[this.brush];
      this.changed();
    } else return;
    event.preventDefault();
    const value = this.ink[this.cell];
    const word = Number.isNaN(value) ? "unknown" : value > 0 ? "ink" : "blank";
    this.announce(`Row ${Math.floor(this.cell / side) + 1}, column ${(this.cell % side) + 1}: ${word}`);
    this.draw();
  }

  draw() {
    const { side, ink, cell } = this;
    const unknown = channels("model");
    const checker = (i) => ((i + Math.floor(i / side)) % 2 ? 34 : 48);
    paint(this.canvas, (i) => (Number.isNaN(ink[i]) ? [...unknown, checker(i)] : grey(ink[i])));
    if (document.activeElement !== this.canvas) return;
    const context = this.canvas.getContext("2d");
    context.fillStyle = rgb("accent", 0.8);
    context.fillRect(cell % side, Math.floor(cell / side), 1, 1);
  }
}
