// Points: a set that a person edits by mouse, touch or keyboard, in any number of plots at once.

import { h, shown } from "./dom.js";

const REACH = { mouse: 12, pen: 14, touch: 24 }; // pixels within which a point is meant
const LONG_PRESS = 550,
  DOUBLE_TAP = 350; // milliseconds

/** Points { x, y }, which one is selected, and where the keyboard's cross is. Tells of every change. */
export class PointSet extends EventTarget {
  points = [];
  selected = -1;
  cross = { x: 0, y: 0 };
  limit = 60;

  constructor(describe = () => {}) {
    super();
    this.describe = describe;
  }

  #changed(kind, text = "") {
    this.dispatchEvent(new CustomEvent("change", { detail: kind }));
    if (text) this.describe(text);
  }

  set(points) {
    this.points = points.slice(0, this.limit);
    this.selected = -1;
    this.#changed("points", `${points.length} points`);
  }

  add(point) {
    if (this.points.length >= this.limit)
      return this.describe(`The plot holds at most ${this.limit} points.`);
    this.points = [...this.points, point];
    this.selected = this.points.length - 1;
    this.#changed("points", `Point ${this.points.length} added at ${place(point)}`);
  }

  move(index, point, say = false) {
    this.points = this.points.map((old, i) => (i === index ? { ...old, ...point } : old));
    this.#changed("points", say ? `Point ${index + 1} at ${place(this.points[index])}` : "");
  }

  remove(index) {
    if (index < 0 || index >= this.points.length) return;
    this.points = this.points.filter((_, i) => i !== index);
    this.selected = -1;
    this.#changed("points", `Point removed, ${this.points.length} left`);
  }

  select(index, say = false) {
    this.selected = index;
    const point = this.points[index];
    this.#changed(
      "selection",
      say && point ? `Point ${index + 1} of ${this.points.length}, ${place(point)}` : "",
    );
  }

  step(direction) {
    const count = this.points.length;
    if (!count) return;
    const order = this.points.map((_, i) => i).sort((a, b) => this.points[a].x - this.points[b].x);
    const now = order.indexOf(this.selected);
    this.select(order[now < 0 ? (direction > 0 ? 0 : count - 1) : (now + direction + count) % count], true);
  }

  moveCross(x, y) {
    this.cross = { x, y };
    this.#changed("cross", place(this.cross));
  }
}

const place = ({ x, y }) => `x ${shown(x)}, y ${shown(y)}`;

/** Let a plot's canvas edit a set. `probe(x)` is told where a person points; null when nowhere. */
export class Editor {
  #drag = null;
  #press = 0;
  #twice = -1; // the point that two presses in a row were on
  #last = { time: 0, index: -2 }; // the press before this one, and on which point it was

  constructor(plot, set, probe = () => {}) {
    Object.assign(this, { plot, set, probe });
    const { canvas } = plot;
    canvas.tabIndex = 0;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", () => this.#stop());
    canvas.addEventListener("pointerleave", () => this.probe(null));
    canvas.addEventListener("dblclick", () => this.#twice >= 0 && this.set.remove(this.#twice));
    canvas.addEventListener("contextmenu", (event) => this.#menu(event));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    // A finger on a point drags it; anywhere else it scrolls the page.
    canvas.addEventListener("touchstart", (event) => this.#touch(event), { passive: false });
  }

  #where(event) {
    const box = this.plot.canvas.getBoundingClientRect();
    return { px: event.clientX - box.left, py: event.clientY - box.top };
  }

  #hit({ px, py }, reach) {
    let best = -1,
      nearest = reach;
    this.set.points.forEach(({ x, y }, i) => {
      const distance = Math.hypot(this.plot.px(x) - px, this.plot.py(y) - py);
      if (distance < nearest) [best, nearest] = [i, distance];
    });
    return best;
  }

  #touch(event) {
    const [touch] = event.touches;
    if (event.touches.length === 1 && this.#hit(this.#where(touch), REACH.touch) >= 0) event.preventDefault();
  }

  #down(event) {
    if (event.button !== 0 || !event.isPrimary) return;
    const at = this.#where(event),
      index = this.#hit(at, REACH[event.pointerType] ?? 14),
      now = performance.now();
    const again = index >= 0 && index === this.#last.index; // a point that was there at the first press
    this.#twice = again ? index : -1;
    if (again && event.pointerType === "touch" && now - this.#last.time < DOUBLE_TAP) {
      this.#last = { time: 0, index: -2 };
      return this.set.remove(index);
    }
    this.#last = { time: now, index };
    this.#drag = { index, at, moved: false, type: event.pointerType };
    if (index >= 0) {
      this.plot.canvas.setPointerCapture(event.pointerId);
      this.set.select(index);
      if (event.pointerType !== "mouse") this.#press = setTimeout(() => this.#long(), LONG_PRESS);
    } else if (event.pointerType === "mouse") {
      this.plot.canvas.setPointerCapture(event.pointerId);
      this.set.add(this.plot.at(at.px, at.py));
      this.#drag.index = this.set.points.length - 1;
    }
  }

  #long() {
    if (!this.#drag || this.#drag.moved) return;
    const { index } = this.#drag;
    this.#stop();
    this.set.remove(index);
  }

  #move(event) {
    const at = this.#where(event),
      drag = this.#drag,
      place = this.plot.at(at.px, at.py);
    this.probe(place.x);
    this.plot.canvas.style.cursor = this.#hit(at, REACH.mouse) >= 0 ? "grab" : "crosshair";
    if (!drag) return;
    if (!drag.moved && Math.hypot(at.px - drag.at.px, at.py - drag.at.py) < 4) return;
    drag.moved = true;
    clearTimeout(this.#press);
    if (drag.index >= 0 && drag.index < this.set.points.length) this.set.move(drag.index, place);
  }

  #up(event) {
    const drag = this.#drag;
    if (drag && drag.index < 0 && !drag.moved) {
      const { px, py } = this.#where(event);
      this.set.add(this.plot.at(px, py));
    }
    this.#stop();
  }

  #stop() {
    clearTimeout(this.#press);
    this.#drag = null;
  }

  #menu(event) {
    const index = this.#hit(this.#where(event), REACH.mouse);
    event.preventDefault();
    if (event.pointerType === "mouse") this.set.remove(index);
  }

  #key(event) {
    const { set, plot } = this,
      factor = event.shiftKey ? 5 : 1;
    const dx = ((plot.view.x[1] - plot.view.x[0]) / 100) * factor,
      dy = ((plot.view.y[1] - plot.view.y[0]) / 100) * factor;
    const arrows = { ArrowLeft: [-dx, 0], ArrowRight: [dx, 0], ArrowUp: [0, dy], ArrowDown: [0, -dy] };
    const keys = {
      Enter: () => set.add({ ...set.cross }),
      " ": () => set.add({ ...set.cross }),
      Delete: () => set.remove(set.selected),
      Backspace: () => set.remove(set.selected),
      Escape: () => set.select(-1),
      n: () => set.step(1),
      p: () => set.step(-1),
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in arrows) this.#shift(arrows[event.key]);
    else if (event.key in keys) keys[event.key]();
    else return;
    event.preventDefault();
  }

  #shift([dx, dy]) {
    const { set, plot } = this,
      {
        x: [left, right],
        y: [low, high],
      } = plot.view;
    const from = set.points[set.selected] ?? set.cross;
    const to = {
      x: Math.min(right, Math.max(left, from.x + dx)),
      y: Math.min(high, Math.max(low, from.y + dy)),
    };
    if (set.selected >= 0) set.move(set.selected, to, true);
    else set.moveCross(to.x, to.y);
    this.probe(to.x);
  }
}

/** The points as numbers, which can be typed: for exact values, and for those who do not see the plot. */
export function pointTable(set) {
  const body = h("tbody"),
    details = h("details", { class: "numbers" }, h("summary", {}, "Points as numbers"));
  details.append(
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, ...["x", "y", "remove"].map((text) => h("th", { scope: "col" }, text)))),
      body,
    ),
  );
  const cell = (index, axis) => {
    const input = h("input", {
      type: "number",
      step: 0.1,
      value: set.points[index][axis].toFixed(2),
      "aria-label": `${axis} of point ${index + 1}`,
    });
    input.addEventListener(
      "change",
      () => Number.isFinite(input.valueAsNumber) && set.move(index, { [axis]: input.valueAsNumber }),
    );
    return h("td", {}, input);
  };
  const row = (_, i) =>
    h(
      "tr",
      {},
      cell(i, "x"),
      cell(i, "y"),
      h(
        "td",
        {},
        h(
          "button",
          { type: "button", "aria-label": `Remove point ${i + 1}`, onclick: () => set.remove(i) },
          "×",
        ),
      ),
    );
  const fill = () => details.open && body.replaceChildren(...set.points.map(row));
  details.addEventListener("toggle", fill);
  set.addEventListener("change", ({ detail }) => {
    const typing = body.contains(document.activeElement) && body.rows.length === set.points.length;
    if (detail === "points" && !typing) fill();
  });
  body.addEventListener("focusout", () => setTimeout(() => !body.contains(document.activeElement) && fill()));
  return details;
}
