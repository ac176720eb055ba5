// Jobs: what the page asks a network or a process for. Plain functions of plain data; a worker runs them, and so do tests.

import { averaged, averagedFunctions, exact, functions, processes } from "./gp.js";
import { moments } from "./predictive.js";
import { normals, turning } from "./random.js";

/** Points { x, y } with one input and one output as the arrays that a network reads. */
export const contextOf = (points) => ({
  x: Float64Array.from(points, (point) => point.x),
  y: Float64Array.from(points, (point) => point.y),
  count: points.length,
});

/** Noise for K draws of z_G and S draws of each z_*, as far as a network has them. */
function noiseOf(network, K, S, T, seed) {
  const { global, local } = network.sizes;
  return {
    global: global ? normals(seed, K * global) : undefined,
    local: local ? normals(seed + 1, K * S * T * local) : undefined,
  };
}

/** Mean and both variances of a network at places. */
export function bands(network, { points, places, draws = 24, locals = 2, seed = 1 }) {
  const T = places.length, S = network.sizes.local ? locals : 1, K = Math.ceil(draws / S);
  const prediction = network.predict(contextOf(points), Float64Array.from(places), T, noiseOf(network, K, S, T, seed));
  return { ...moments(prediction), latent: network.sizes.global > 0 };
}

/**
 * Functions of a network, [count, T]. With z_G each draw of it is one function. Without, a function is drawn point by
 * point, each fed back as context (autoregression) at a few anchors; then the mean given those is drawn.
 */
export function draws(network, { points, places, count, seed, phase = 0, interval }) {
  const T = places.length, x = Float64Array.from(places);
  if (network.sizes.global) {
    const noise = { global: turning(seed, count * network.sizes.global, phase) };
    return network.predict(contextOf(points), x, T, noise).mean;
  }
  const out = new Float64Array(count * T), places0 = anchors(interval);
  const noise = turning(seed, count * places0.length, phase);
  for (let c = 0; c < count; c++) {
    const known = [...points];
    places0.forEach((place, i) => {
      const { mean, scale } = network.predict(contextOf(known), Float64Array.of(place), 1);
      known.push({ x: place, y: mean[0] + scale[0] * noise[c * places0.length + i] });
    });
    out.set(network.predict(contextOf(known), x, T).mean, c * T);
  }
  return out;
}

/** Places of an interval in an order that spreads out: middle, quarters, eighths. */
export function anchors([low, high], levels = 4) {
  const out = [low, high];
  for (let level = 1; level <= levels; level++)
    for (let i = 1; i < 2 ** level; i += 2) out.push(low + ((high - low) * i) / 2 ** level);
  return out;
}

/** The exact answer, of one process or of the average over a domain's. */
export function exactBands(_, { points, places, process, domain }) {
  return process ? exact(points, places, process) : averaged(points, places, listed(domain));
}

export function exactDraws(_, { points, places, process, domain, count, seed, phase }) {
  if (process) return functions(points, places, process, count, seed, phase);
  return averagedFunctions(points, places, listed(domain), count, seed, phase);
}

let cache = { key: "", all: [] };
function listed(domain) {
  const key = JSON.stringify(domain);
  if (cache.key !== key) cache = { key, all: processes(domain) };
  return cache.all;
}

/** Components of K draws of z_G and, for each, S draws of every z_*: means and scales, [K, S, T]. */
export function components(network, { points, places, K, S, seedGlobal, seedLocal, shared }) {
  const T = places.length, { global, local } = network.sizes;
  const noise = {
    global: normals(seedGlobal, K * global),
    local: normals(seedLocal, K * S * (shared ? 1 : T) * local),
    shared,
  };
  const { mean, scale } = network.predict(contextOf(points), Float64Array.from(places), T, noise);
  return { mean, scale };
}

/** A prediction for inputs and outputs of any size: { x, y, count } and targets x [T, dim_x]. */
export function predictRows(network, { context, targets, T, K = 1, seed = 1, mean = false }) {
  const noise = mean ? {} : noiseOf(network, K, 1, T, seed);
  return network.predict(context, targets, T, noise);
}

/** Mean and spread of a prediction for rows, or the means of its draws. */
export function rowMoments(network, request) {
  return moments(predictRows(network, request));
}

export const JOBS = { bands, draws, exactBands, exactDraws, components, predictRows, rowMoments };
