// Shading: a predicted density and the plane of a latent as small pictures.

import { palette } from "./theme.js";

/** Numbers from low to high. */
export const range = (count, [low, high]) =>
  Array.from({ length: count }, (_, i) => low + ((high - low) * i) / (count - 1));

/** r, g, b of a colour of the theme. */
export const channels = (name) => palette()[name].split(" ").map(Number);

/** Put a picture on a canvas of its size; `colour(i)` gives r, g, b and opacity of each pixel. */
export function paint(canvas, colour) {
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  for (let i = 0; i < canvas.width * canvas.height; i++) image.data.set(colour(i), 4 * i);
  context.putImageData(image, 0, 0);
}

/** Density of a mixture of Gaussians with means and scales [count, T] at values of y, [T, rows]. */
export function density({ mean, scale }, T, values) {
  const rows = values.length;
  const count = mean.length / T;
  const step = values[1] - values[0];
  const out = new Float64Array(T * rows);
  for (let c = 0; c < count; c++)
    for (let t = 0; t < T; t++) {
      const m = mean[c * T + t];
      const s = Math.max(scale[c * T + t], step / 2); // no narrower than a row
      const factor = 1 / (count * s * Math.sqrt(2 * Math.PI));
      const first = Math.max(0, Math.floor((m - 4 * s - values[0]) / step));
      const last = Math.min(rows - 1, Math.ceil((m + 4 * s - values[0]) / step));
      for (let r = first; r <= last; r++)
        out[t * rows + r] += factor * Math.exp(-0.5 * ((values[r] - m) / s) ** 2);
    }
  return out;
}

/** Paint a density [T, rows] on a canvas of that size, small values of y at the bottom. */
export function paintDensity(canvas, values) {
  const { width: T, height: rows } = canvas;
  const colour = channels("model");
  paint(canvas, (i) => {
    const value = values[(i % T) * rows + rows - 1 - Math.floor(i / T)];
    return [...colour, 255 * 0.75 * (1 - Math.exp(-0.9 * value))];
  });
}

/** Paint numbers from one colour to another; returns the smallest and the largest. */
export function paintScale(canvas, values, from = "accent", to = "model") {
  const low = Math.min(...values);
  const high = Math.max(...values);
  const [a, b] = [channels(from), channels(to)];
  paint(canvas, (i) => {
    const share = (values[i] - low) / Math.max(0.05, high - low);
    return [...a.map((value, c) => value + share * (b[c] - value)), 255];
  });
  return [low, high];
}
