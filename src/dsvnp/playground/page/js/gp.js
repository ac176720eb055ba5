// Gaussian processes, exactly: one kernel with known hyper-parameters, or all that the networks were trained on, each
// weighed by how probable it makes the points.
//
//     mean = k(x, X) (K + σ²I)⁻¹ y,   variance = k(x, x) − k(x, X) (K + σ²I)⁻¹ k(X, x),   K + σ²I = L Lᵀ

import { turning, uniforms } from "./random.js";

export const KERNELS = {
  rbf: (d, { length, scale }) => scale ** 2 * Math.exp(-0.5 * (d / length) ** 2),
  matern52: (d, { length, scale }) => {
    const r = (Math.sqrt(5) * Math.abs(d)) / length;
    return scale ** 2 * (1 + r + (r * r) / 3) * Math.exp(-r);
  },
  periodic: (d, { length, scale, period }) =>
    scale ** 2 * Math.exp(-2 * (Math.sin((Math.PI * d) / period) / length) ** 2),
};

/** k(a, b), [A, B]. */
export function covariance(a, b, process) {
  const k = KERNELS[process.kernel],
    out = new Float64Array(a.length * b.length);
  for (let i = 0; i < a.length; i++)
    for (let j = 0; j < b.length; j++) out[i * b.length + j] = k(a[i] - b[j], process);
  return out;
}

/** L with L Lᵀ = A [n, n], in place, the upper part left as it is. */
export function cholesky(a, n) {
  for (let i = 0; i < n; i++)
    for (let j = 0; j <= i; j++) {
      let sum = a[i * n + j];
      for (let m = 0; m < j; m++) sum -= a[i * n + m] * a[j * n + m];
      if (i !== j) a[i * n + j] = sum / a[j * n + j];
      else if (sum > 0) a[i * n + i] = Math.sqrt(sum);
      else throw new Error("the covariance is not positive definite; add noise");
    }
  return a;
}

/** L⁻¹ b, in place. */
export function forward(factor, n, b) {
  for (let i = 0; i < n; i++) {
    let sum = b[i];
    for (let m = 0; m < i; m++) sum -= factor[i * n + m] * b[m];
    b[i] = sum / factor[i * n + i];
  }
  return b;
}

/** L⁻ᵀ b, in place. */
export function backward(factor, n, b) {
  for (let i = n - 1; i >= 0; i--) {
    let sum = b[i];
    for (let m = i + 1; m < n; m++) sum -= factor[m * n + i] * b[m];
    b[i] = sum / factor[i * n + i];
  }
  return b;
}

/** What points say under a process: the factor L, L⁻¹y and ln p(y). */
function condition(points, process) {
  const X = points.map((point) => point.x),
    n = X.length,
    factor = covariance(X, X, process);
  for (let i = 0; i < n; i++) factor[i * n + i] += process.noise ** 2 + 1e-9 * process.scale ** 2;
  cholesky(factor, n);
  const white = forward(
    factor,
    n,
    Float64Array.from(points, (point) => point.y),
  );
  let distance = 0,
    determinant = 0;
  for (let i = 0; i < n; i++) {
    distance += white[i] ** 2;
    determinant += Math.log(factor[i * n + i]);
  }
  return {
    X,
    n,
    factor,
    white,
    distance,
    evidence: -0.5 * distance - determinant - 0.5 * n * Math.log(2 * Math.PI),
  };
}

/** Mean and variance of f at places, [T] each. */
function posterior({ X, n, factor, white }, places, process) {
  const mean = new Float64Array(places.length),
    variance = new Float64Array(places.length),
    column = new Float64Array(n);
  const k = KERNELS[process.kernel];
  places.forEach((place, t) => {
    for (let i = 0; i < n; i++) column[i] = k(place - X[i], process);
    forward(factor, n, column);
    let left = k(0, process);
    for (let i = 0; i < n; i++) {
      mean[t] += column[i] * white[i];
      left -= column[i] ** 2;
    }
    variance[t] = Math.max(0, left);
  });
  return { mean, variance };
}

/** The exact answer of one process: mean, epistemic variance (of f) and aleatoric variance (of the noise). */
export function exact(points, places, process) {
  const { mean, variance } = posterior(condition(points, process), places, process);
  return { mean, epistemic: variance, aleatoric: new Float64Array(places.length).fill(process.noise ** 2) };
}

/** Functions of one process given points, [count, T], by Matheron's rule: a fixed prior path plus a correction. */
export function functions(points, places, process, count, seed, phase = 0) {
  const T = places.length,
    prior = covariance(places, places, process);
  for (let i = 0; i < T; i++) prior[i * T + i] += 1e-6 * process.scale ** 2;
  cholesky(prior, T);
  const known = condition(points, process),
    { X, n, factor } = known;
  const out = new Float64Array(count * T),
    cross = covariance(X, places, process),
    toPlaces = covariance(places, X, process);
  const noise = turning(seed, count * T, phase),
    own = turning(seed + 1, count * Math.max(1, n), phase);
  for (let c = 0; c < count; c++) {
    const white = noise.subarray(c * T, (c + 1) * T),
      path = out.subarray(c * T, (c + 1) * T);
    for (let i = 0; i < T; i++) for (let j = 0; j <= i; j++) path[i] += prior[i * T + j] * white[j];
    if (!n) continue;
    const weights = backward(prior, T, Float64Array.from(white)); // K⁻¹ of the path: carries it to other places
    const rest = Float64Array.from(points, (point, i) => {
      let value = 0;
      for (let j = 0; j < T; j++) value += cross[i * T + j] * weights[j];
      return point.y - value - process.noise * own[c * n + i];
    });
    backward(factor, n, forward(factor, n, rest));
    for (let t = 0; t < T; t++) for (let i = 0; i < n; i++) path[t] += toPlaces[t * n + i] * rest[i];
  }
  return out;
}

/** Values between two limits, each in the middle of an equal part. */
const nodes = ([low, high], count) =>
  Array.from({ length: count }, (_, i) => low + ((i + 0.5) / count) * (high - low));

/** Processes that stand for a prior over kernels and hyper-parameters, with the probability of each. */
export function processes({ kernels, noise: noises }) {
  const all = [],
    names = Object.keys(kernels);
  for (const kernel of names) {
    const { length, scale, period } = kernels[kernel],
      wave = kernel === "periodic";
    const own = [];
    for (const l of nodes(length, wave ? 3 : 8))
      for (const s of nodes(scale, 3))
        for (const p of wave ? nodes(period, 16) : [1])
          for (const noise of noises) own.push({ kernel, length: l, scale: s, period: p, noise });
    for (const process of own) all.push({ ...process, prior: 1 / (names.length * own.length) });
  }
  return all;
}

/** Weights of processes given points, and the smallest yᵀ(K + σ²I)⁻¹y of any. */
export function weigh(points, all) {
  const known = all.map((process) => condition(points, process));
  const logs = known.map(({ evidence }, i) => evidence + Math.log(all[i].prior)),
    top = Math.max(...logs);
  const raw = logs.map((value) => Math.exp(value - top)),
    total = raw.reduce((a, b) => a + b, 0);
  const weights = raw.map((value) => value / total);
  return { known, weights, distance: Math.min(...known.map((each) => each.distance)) };
}

/** The exact answer where kernel and hyper-parameters are not known: the average over all, by their weights. */
export function averaged(points, places, all) {
  const { known, weights, distance } = weigh(points, all),
    T = places.length;
  const mean = new Float64Array(T),
    square = new Float64Array(T),
    aleatoric = new Float64Array(T);
  const used = all.map((_, i) => i).filter((i) => weights[i] > 1e-3 * Math.max(...weights));
  const total = used.reduce((sum, i) => sum + weights[i], 0);
  for (const i of used) {
    const part = posterior(known[i], places, all[i]),
      w = weights[i] / total;
    for (let t = 0; t < T; t++) {
      mean[t] += w * part.mean[t];
      square[t] += w * (part.variance[t] + part.mean[t] ** 2);
      aleatoric[t] += w * all[i].noise ** 2;
    }
  }
  const epistemic = square.map((value, t) => Math.max(0, value - mean[t] ** 2));
  return { mean, epistemic, aleatoric, tail: chiSquareTail(distance, points.length) };
}

/** Functions of the average: each from a process of its own, chosen by the weights with a fixed number. */
export function averagedFunctions(points, places, all, count, seed, phase = 0) {
  const { weights } = weigh(points, all),
    next = uniforms(seed),
    out = new Float64Array(count * places.length);
  for (let c = 0; c < count; c++) {
    let left = next(),
      i = 0;
    while (i + 1 < all.length && left >= weights[i]) left -= weights[i++];
    out.set(functions(points, places, all[i], 1, seed + 7919 * (c + 1), phase), c * places.length);
  }
  return out;
}

/** P(χ²_n > value), by Wilson and Hilferty; 1 without points. */
export function chiSquareTail(value, n) {
  if (!n) return 1;
  const z = (Math.cbrt(value / n) - (1 - 2 / (9 * n))) / Math.sqrt(2 / (9 * n));
  return 0.5 * erfc(z / Math.SQRT2);
}

/** 1 − erf to a relative error of 1e-7 (Numerical Recipes), which holds far out in the tail. */
function erfc(x) {
  const z = Math.abs(x),
    t = 2 / (2 + z);
  const series = [
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587,
    -0.82215223, 0.17087277,
  ].reduceRight((sum, coefficient) => coefficient + t * sum, 0);
  const tail = t * Math.exp(-z * z + series);
  return x >= 0 ? tail : 2 - tail;
}
