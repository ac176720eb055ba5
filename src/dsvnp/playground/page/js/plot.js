// Plot: a canvas with axes, sharp on any screen, on which curves, bands and points are drawn in the data's units.

import { rgb } from "./theme.js";

const MARGIN = { left: 30, right: 8, top: 8, bottom: 20 };
const FONT = "11px system-ui, sans-serif";

export class Plot {
  constructor(canvas, { x, y, ticks = { x: 1, y: 1 } }) {
    this.canvas = canvas;
    this.view = { x, y };
    this.ticks = ticks;
    this.context = canvas.getContext("2d");
  }

  /** Fit the canvas to its place on the page; returns whether it has any. */
  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas,
      ratio = devicePixelRatio || 1;
    if (!width || !height) return false;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== h)
      Object.assign(this.canvas, { width: w, height: h });
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    Object.assign(this, { width, height });
    return true;
  }

  px(x) {
    const [low, high] = this.view.x;
    return MARGIN.left + ((x - low) / (high - low)) * (this.width - MARGIN.left - MARGIN.right);
  }

  py(y) {
    const [low, high] = this.view.y;
    return (
      this.height - MARGIN.bottom - ((y - low) / (high - low)) * (this.height - MARGIN.top - MARGIN.bottom)
    );
  }

  /** The data's units of a place in CSS pixels, kept within the view. */
  at(px, py) {
    const { x, y } = this.view,
      clamp = (value, [low, high]) => Math.min(high, Math.max(low, value));
    const u = (px - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right);
    const v = (this.height - MARGIN.bottom - py) / (this.height - MARGIN.top - MARGIN.bottom);
    return { x: clamp(x[0] + u * (x[1] - x[0]), x), y: clamp(y[0] + v * (y[1] - y[0]), y) };
  }

  /** Begin a picture: ground, lines and numbers of the axes. */
  clear() {
    const c = this.context;
    c.clearRect(0, 0, this.width, this.height);
    c.font = FONT;
    c.fillStyle = rgb("muted");
    c.strokeStyle = rgb("line");
    c.lineWidth = 1;
    for (const value of steps(this.view.x, this.ticks.x)) {
      this.#rule(this.px(value), MARGIN.top, this.px(value), this.height - MARGIN.bottom);
      c.textAlign = "center";
      c.fillText(label(value), this.px(value), this.height - 6);
    }
    for (const value of steps(this.view.y, this.ticks.y)) {
      this.#rule(MARGIN.left, this.py(value), this.width - MARGIN.right, this.py(value));
      c.textAlign = "right";
      c.fillText(label(value), MARGIN.left - 6, this.py(value) + 4);
    }
    c.save();
    c.beginPath();
    c.rect(
      MARGIN.left,
      MARGIN.top,
      this.width - MARGIN.left - MARGIN.right,
      this.height - MARGIN.top - MARGIN.bottom,
    );
    c.clip();
  }

  /** End a picture. */
  done() {
    this.context.restore();
  }

  #rule(x0, y0, x1, y1) {
    this.context.beginPath();
    this.context.moveTo(x0, y0);
    this.context.lineTo(x1, y1);
    this.context.stroke();
  }

  #path(xs, ys, back = false) {
    const c = this.context,
      n = xs.length;
    for (let i = 0; i < n; i++) {
      const j = back ? n - 1 - i : i,
        method = i || back ? "lineTo" : "moveTo";
      c[method](this.px(xs[j]), this.py(ys[j]));
    }
  }

  /** A line through points; style { colour, width, dash }. */
  line(xs, ys, { colour, width = 1.5, dash = [] }) {
    const c = this.context;
    c.beginPath();
    this.#path(xs, ys);
    Object.assign(c, { strokeStyle: colour, lineWidth: width, lineJoin: "round" });
    c.setLineDash(dash);
    c.stroke();
    c.setLineDash([]);
  }

  /** The area between two lines. */
  band(xs, low, high, colour) {
    const c = this.context;
    c.beginPath();
    this.#path(xs, low);
    this.#path(xs, high, true);
    c.closePath();
    c.fillStyle = colour;
    c.fill();
  }

  /** A filled dot; `ring` draws a circle around it. */
  dot(x, y, { colour, radius = 4.5, ring = null, edge = null }) {
    const c = this.context;
    c.beginPath();
    c.arc(this.px(x), this.py(y), radius, 0, 2 * Math.PI);
    c.fillStyle = colour;
    c.fill();
    if (edge) (Object.assign(c, { strokeStyle: edge, lineWidth: 1.5 }), c.stroke());
    if (!ring) return;
    c.beginPath();
    c.arc(this.px(x), this.py(y), radius + 4, 0, 2 * Math.PI);
    Object.assign(c, { strokeStyle: ring, lineWidth: 2 });
    c.stroke();
  }

  /** A vertical line, as where a person points. */
  upright(x, colour, dash = [2, 3]) {
    const { y } = this.view;
    this.line([x, x], y, { colour, width: 1, dash });
  }

  /** A text in the middle near the top. */
  say(text) {
    Object.assign(this.context, {
      fillStyle: rgb("muted"),
      textAlign: "center",
      font: "14px system-ui, sans-serif",
    });
    this.context.fillText(text, this.width / 2, MARGIN.top + 24);
  }

  /** A cross, where the keyboard would add a point. */
  cross(x, y, colour, size = 8) {
    const c = this.context,
      [u, v] = [this.px(x), this.py(y)];
    Object.assign(c, { strokeStyle: colour, lineWidth: 2 });
    this.#rule(u - size, v, u + size, v);
    this.#rule(u, v - size, u, v + size);
  }

  /** Hatch where x lies outside an interval; with a text, write it there instead. */
  outside([low, high], text = "") {
    const c = this.context,
      [left, right] = this.view.x,
      bottom = this.height - MARGIN.bottom;
    for (const [from, to] of [
      [left, low],
      [high, right],
    ]) {
      const a = this.px(from),
        b = this.px(to);
      if (text) {
        this.#along((a + b) / 2 + 4, (MARGIN.top + bottom) / 2, text);
        continue;
      }
      c.fillStyle = rgb("warn", 0.08);
      c.fillRect(a, MARGIN.top, b - a, bottom - MARGIN.top);
      Object.assign(c, { strokeStyle: rgb("warn", 0.22), lineWidth: 1 });
      c.save();
      c.beginPath();
      c.rect(a, MARGIN.top, b - a, bottom - MARGIN.top);
      c.clip();
      for (let s = a - bottom; s < b; s += 9) this.#rule(s, bottom, s + bottom, 0);
      c.restore();
    }
  }

  #along(x, y, text) {
    const c = this.context;
    c.save();
    c.translate(x, y);
    c.rotate(-Math.PI / 2);
    Object.assign(c, {
      fillStyle: rgb("warn"),
      strokeStyle: rgb("surface", 0.8),
      lineWidth: 3,
      textAlign: "center",
      font: FONT,
    });
    c.strokeText(text, 0, 0);
    c.fillText(text, 0, 0);
    c.restore();
  }
}

function steps([low, high], step) {
  const out = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + 1e-9; value += step)
    out.push(Math.abs(value) < 1e-9 ? 0 : value);
  return out;
}

const label = (value) => String(Number(value.toFixed(2))).replace("-", "−");
