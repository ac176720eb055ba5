// The scene of the cart-pole: a cart on a rail that the eye follows, its pole, and the force as an arrow.

import { rgb } from "./theme.js";

const METRE = 110; // pixels

export function drawScene(canvas, [x, theta], force, length) {
  const { clientWidth: width, clientHeight: height } = canvas,
    ratio = devicePixelRatio || 1;
  if (!width || !height) return;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
  const c = canvas.getContext("2d"),
    rail = 78,
    middle = width / 2;
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  ruler(c, x, middle, rail, width);
  cart(c, middle, rail);
  pole(c, middle, rail, theta, length);
  if (force) arrow(c, middle, rail - 22, force);
}

/** The rail with a mark each half metre; it moves, the cart stays in sight. */
function ruler(c, x, middle, rail, width) {
  Object.assign(c, {
    strokeStyle: rgb("muted"),
    fillStyle: rgb("muted"),
    lineWidth: 2,
    textAlign: "center",
    font: "11px system-ui, sans-serif",
  });
  stroke(c, [0, rail], [width, rail]);
  c.lineWidth = 1;
  const first = Math.ceil((x - middle / METRE) * 2) / 2;
  for (let mark = first; mark < x + middle / METRE; mark += 0.5) {
    const at = middle + (mark - x) * METRE;
    stroke(c, [at, rail], [at, rail + (Number.isInteger(mark) ? 9 : 5)]);
    if (Number.isInteger(mark) && Math.abs(at - middle) > 70)
      c.fillText(`${mark} m`.replace("-", "−"), at, rail + 22);
  }
}

function cart(c, middle, rail) {
  Object.assign(c, { fillStyle: rgb("model"), strokeStyle: rgb("ink"), lineWidth: 2 });
  c.beginPath();
  c.roundRect(middle - 42, rail - 38, 84, 30, 6);
  c.fill();
  Object.assign(c, {
    fillStyle: rgb("surface"),
    font: "600 13px system-ui, sans-serif",
    textAlign: "center",
  });
  c.fillText("? kg", middle, rail - 18);
  for (const side of [-24, 24]) disc(c, middle + side, rail - 7, 7, rgb("ink"));
}

function pole(c, middle, rail, theta, length) {
  const hinge = [middle, rail - 6],
    tip = [middle + METRE * length * Math.sin(theta), rail - 6 + METRE * length * Math.cos(theta)];
  Object.assign(c, { strokeStyle: rgb("exact"), lineWidth: 7, lineCap: "round" });
  stroke(c, hinge, tip);
  disc(c, ...hinge, 5, rgb("ink"));
}

function arrow(c, x, y, force) {
  const side = Math.sign(force),
    from = x + side * 52,
    to = from + force * 9;
  Object.assign(c, { strokeStyle: rgb("accent"), fillStyle: rgb("accent"), lineWidth: 4, lineCap: "butt" });
  stroke(c, [from, y], [to, y]);
  c.beginPath();
  c.moveTo(to + side * 10, y);
  c.lineTo(to, y - 8);
  c.lineTo(to, y + 8);
  c.fill();
}

function stroke(c, from, to) {
  c.beginPath();
  c.moveTo(...from);
  c.lineTo(...to);
  c.stroke();
}

function disc(c, x, y, radius, colour) {
  c.fillStyle = colour;
  c.beginPath();
  c.arc(x, y, radius, 0, 2 * Math.PI);
  c.fill();
}
