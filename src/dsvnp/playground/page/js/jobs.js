// Jobs: what the page asks a network or a process for. Plain functions of plain data; a worker runs them, and so do tests.

import { averaged, averagedFunctions, exact, functions, processes } from "./gp.js";
import { STEP, inputOf, massOf } from "./physics.js";
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
    global: global ? balanced(seed, K, global) : undefined,
    local: local ? normals(seed + 1, K * S * T * local) : undefined,
  };
}

/** K draws of which each even one is the negative of the one before: their mean is exact, and fewer suffice. */
function balanced(seed, K, size) {
  const out = normals(seed, K * size);
  for (let k = 1; k < K; k += 2) for (let i = 0; i < size; i++) out[k * size + i] = -out[(k - 1) * size + i];
  return out;
}

/** Mean and both variances of a network at places; draws of z_* share their noise over places, for smooth bands. */
export function bands(network, { points, places, draws = 32, locals = 2, seed = 1 }) {
  const T = places.length,
    S = network.sizes.local ? locals : 1,
    K = Math.ceil(draws / S);
  const noise = { ...noiseOf(network, K, S, 1, seed), shared: true };
  const prediction = network.predict(contextOf(points), Float64Array.from(places), T, noise);
  return { ...moments(prediction), latent: network.sizes.global > 0 };
}

/**
 * Functions of a network, [count, T]. With z_G each draw of it is one function. Without, a function is drawn at a few
 * anchors, which are fed back as context one after the other, then in blocks where neighbours are known already
 * (autoregression); the function is the mean given all of them.
 */
export function draws(network, { points, places, count, seed, phase = 0, interval }) {
  const T = places.length;
  const x = Float64Array.from(places);
  if (network.sizes.global) {
    const noise = { global: turning(seed, count * network.sizes.global, phase) };
    return network.predict(contextOf(points), x, T, noise).mean;
  }
  const out = new Float64Array(count * T);
  const blocks = anchors(interval);
  const size = blocks.flat().length;
  const noise = turning(seed, count * size, phase);
  for (let c = 0; c < count; c++) {
    const known = [...points];
    let at = c * size;
    for (const block of blocks) {
      const { mean, scale } = network.predict(contextOf(known), Float64Array.from(block), block.length);
      block.forEach((place, i) => known.push({ x: place, y: mean[i] + scale[i] * noise[at++] }));
    }
    out.set(network.predict(contextOf(known), x, T).mean, c * T);
  }
  return out;
}

/** Places of an interval in blocks: the ends, the middle and the quarters alone, then all eighths, all sixteenths. */
export function anchors([low, high]) {
  const at = (i) => low + ((high - low) * i) / 16;
  return [[0], [16], [8], [4], [12], [2, 6, 10, 14], [1, 3, 5, 7, 9, 11, 13, 15]].map((block) =>
    block.map(at),
  );
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

/**
 * Components of K draws of z_G and, for each, S draws of every z_*: means and scales, [K, S, T]. All draws of z_G have the
 * same noise of z_*: they differ by z_G alone.
 */
export function components(network, { points, places, K, S, seedGlobal, seedLocal, shared }) {
  const T = places.length,
    { global, local } = network.sizes,
    own = normals(seedLocal, S * (shared ? 1 : T) * local);
  const repeated = new Float64Array(K * own.length);
  for (let k = 0; k < K; k++) repeated.set(own, k * own.length);
  const noise = { global: normals(seedGlobal, K * global), local: repeated, shared };
  const { mean, scale } = network.predict(contextOf(points), Float64Array.from(places), T, noise);
  return { mean, scale };
}

/** What z_* decides at one place: y for a grid of its noise in two dimensions, [size, size], z_G at its mean. */
export function localMap(network, { points, place, size, reach }) {
  const { global, local } = network.sizes,
    noise = new Float64Array(size * size * local);
  const at = (i) => reach * ((2 * i) / (size - 1) - 1);
  for (let row = 0; row < size; row++)
    for (let column = 0; column < size; column++) {
      noise[(row * size + column) * local] = at(column);
      if (local > 1) noise[(row * size + column) * local + 1] = -at(row);
    }
  const latents = { global: new Float64Array(global), local: noise };
  return {
    values: network.predict(contextOf(points), Float64Array.of(place), 1, latents).mean,
    dimensions: local,
  };
}

/** Transitions of a cart-pole as the arrays that a network reads. */
const pushesOf = (transitions, domain) => ({
  x: Float64Array.from(transitions.flatMap(({ state, force }) => inputOf(state, force, domain))),
  y: Float64Array.from(transitions.flatMap(({ measured }) => measured)),
  count: transitions.length,
});

/** The mass that each of K draws of z_G implies: by how much a push from rest would change the cart's speed. */
export function masses(network, { transitions, domain, K, seed, force = 6 }) {
  const x = Float64Array.from(inputOf([0, 0, 0, 0], force, domain));
  const { mean } = network.predict(pushesOf(transitions, domain), x, 1, noiseOf(network, K, 1, 1, seed));
  return Float64Array.from({ length: K }, (_, k) => massOf(mean[2 * k], force, domain));
}

/** Where the cart would be, [K, forces + 1], if it were pushed from rest: each draw of z_G steps with its own cart. */
export function rollouts(network, { transitions, domain, K, seed, forces }) {
  const z = network.summarise(pushesOf(transitions, domain), noiseOf(network, K, 1, 1, seed));
  const Z = z.data.length / K,
    out = new Float64Array(K * (forces.length + 1));
  for (let k = 0; k < K; k++) {
    const own = { data: z.data.subarray(k * Z, (k + 1) * Z), count: 1 };
    let state = [0, 0, 0, 0];
    forces.forEach((force, step) => {
      const { raw } = network.decode(own, Float64Array.from(inputOf(state, force, domain)), 1);
      const speed = state[2] + raw[0] * domain.changes[0],
        spin = state[3] + raw[1] * domain.changes[1];
      state = [
        state[0] + (STEP * (state[2] + speed)) / 2,
        state[1] + (STEP * (state[3] + spin)) / 2,
        speed,
        spin,
      ];
      out[k * (forces.length + 1) + step + 1] = state[0];
    });
  }
  return out;
}

/** Pixels { column, row, ink } in [−1, 1] as a context; all pixels of a picture as targets. */
function pixelTask(pixels, side) {
  const x = new Float64Array(2 * side * side),
    at = (i) => (2 * i) / (side - 1) - 1;
  for (let i = 0; i < side * side; i++) x.set([at(i % side), at(Math.floor(i / side))], 2 * i);
  const context = {
    x: Float64Array.from(pixels.flatMap(({ column, row }) => [at(column), at(row)])),
    y: Float64Array.from(pixels, ({ ink }) => ink),
    count: pixels.length,
  };
  return { context, x, T: side * side };
}

/** A completed picture: mean ink and its standard deviation, [side, side] each. */
export function completion(network, { pixels, side, draws = 8, seed = 1 }) {
  const { context, x, T } = pixelTask(pixels, side),
    K = network.sizes.global ? draws : 1;
  const { mean, epistemic, aleatoric } = moments(
    network.predict(context, x, T, noiseOf(network, K, 1, T, seed)),
  );
  return { mean, std: epistemic.map((value, i) => Math.sqrt(value + aleatoric[i])) };
}

/** Pictures that a network considers possible, [count, side, side]: one per draw of z_G. */
export function pictures(network, { pixels, side, count, seed, phase = 0 }) {
  const { context, x, T } = pixelTask(pixels, side);
  return network.predict(context, x, T, { global: turning(seed, count * network.sizes.global, phase) }).mean;
}

export const JOBS = {
  bands,
  draws,
  exactBands,
  exactDraws,
  components,
  localMap,
  masses,
  rollouts,
  completion,
  pictures,
};
