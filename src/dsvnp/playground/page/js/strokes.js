// Digits of our own as strokes of a pen, drawn on a grid of pixels: examples to reveal parts of.

// Each digit is a few polylines in a square from (0, 0), top left, to (1, 1); arcs are written as points of a circle.
const arc = (cx, cy, rx, ry, from, to, count = 14) =>
  Array.from({ length: count + 1 }, (_, i) => {
    const angle = ((from + ((to - from) * i) / count) * Math.PI) / 180;
    return [cx + rx * Math.cos(angle), cy + ry * Math.sin(angle)];
  });

export const DIGITS = [
  [arc(0.5, 0.5, 0.2, 0.3, 0, 360, 28)],
  [
    [
      [0.42, 0.28],
      [0.54, 0.2],
      [0.5, 0.8],
    ],
  ],
  [[...arc(0.5, 0.36, 0.19, 0.16, 190, 390), [0.34, 0.78], [0.7, 0.77]]],
  [[...arc(0.48, 0.35, 0.18, 0.15, 200, 430), ...arc(0.48, 0.64, 0.2, 0.16, 285, 520)]],
  [
    [
      [0.38, 0.2],
      [0.32, 0.53],
      [0.68, 0.52],
    ],
    [
      [0.63, 0.22],
      [0.58, 0.82],
    ],
  ],
  [[[0.67, 0.22], [0.4, 0.22], [0.37, 0.47], ...arc(0.47, 0.62, 0.19, 0.17, 235, 500)]],
  [[[0.6, 0.18], [0.43, 0.38], ...arc(0.5, 0.64, 0.17, 0.17, 190, 540, 24)]],
  [
    [
      [0.3, 0.25],
      [0.69, 0.23],
      [0.5, 0.5],
      [0.44, 0.82],
    ],
  ],
  [arc(0.5, 0.35, 0.15, 0.15, 90, 450, 24), arc(0.5, 0.66, 0.18, 0.16, -90, 270, 24)],
  [[...arc(0.49, 0.37, 0.16, 0.16, 20, 380, 24), [0.62, 0.55], [0.56, 0.82]]],
];

/** Ink in [0, 1] of each pixel, [side, side]: full within the pen's radius, fading over one pixel. */
export function raster(strokes, side, pen = 1.25) {
  const out = new Float64Array(side * side);
  for (let i = 0; i < out.length; i++) {
    const x = (i % side) + 0.5,
      y = Math.floor(i / side) + 0.5;
    let nearest = Infinity;
    for (const line of strokes)
      for (let j = 0; j + 1 < line.length; j++)
        nearest = Math.min(nearest, toSegment(x, y, line[j], line[j + 1], side));
    out[i] = Math.min(1, Math.max(0, pen + 0.5 - nearest));
  }
  return out;
}

function toSegment(x, y, a, b, side) {
  const [ax, ay, bx, by] = [...a, ...b].map((value) => value * side),
    dx = bx - ax,
    dy = by - ay;
  const share = Math.min(1, Math.max(0, ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy || 1)));
  return Math.hypot(x - ax - share * dx, y - ay - share * dy);
}
