// Problems: hidden functions of the kinds that the networks were trained on, and noisy observations of them.

import { functions } from "./gp.js";
import { freshSeed, normals, uniforms } from "./random.js";
import { range } from "./shading.js";

const SPAN = [-2, 2];

/** A function of a Gaussian process over a wider span, which can be observed again and again. */
export class HiddenCurve {
  constructor(process, view) {
    this.noise = process.noise;
    this.view = view;
    this.x = range(201, view.x);
    this.y = functions([], this.x, process, 1, freshSeed());
  }

  /** Observations at random places, kept within the view. */
  observe(count) {
    const seed = freshSeed();
    const next = uniforms(seed);
    const noise = normals(seed + 1, count);
    const [low, high] = this.view.y;
    return Array.from({ length: count }, (_, i) => {
      const place = SPAN[0] + (SPAN[1] - SPAN[0]) * next();
      const at = this.x.findIndex((x) => x >= place);
      return { x: this.x[at], y: Math.min(high, Math.max(low, this.y[at] + this.noise * noise[i])) };
    });
  }
}

const CENTRE = { kernel: "rbf", length: 0.8, scale: 0.5, noise: 0 };
const GAP = { kernel: "rbf", length: 0.9, scale: 0.25, noise: 0 };

/** Two curves, one above the other, and points of which each lies on one of them. */
export function twoBranches(seed, count, sigma, view) {
  const x = range(89, view.x);
  const centre = functions([], x, CENTRE, 1, seed);
  const half = functions([], x, GAP, 1, seed + 1).map((gap) => Math.abs(0.7 + gap));
  const upper = centre.map((c, i) => c + half[i]);
  const lower = centre.map((c, i) => c - half[i]);
  const next = uniforms(seed + 2);
  const noise = normals(seed + 3, count);
  const points = Array.from({ length: count }, (_, i) => {
    const place = SPAN[0] + (SPAN[1] - SPAN[0]) * next();
    const at = x.findIndex((value) => value >= place);
    return { x: x[at], y: (next() < 0.5 ? upper : lower)[at] + sigma * noise[i] };
  });
  return { x, upper, lower, points };
}
