// Tensors: the few operations that the networks are made of, on plain Float64Array in row-major order.
//
// A matrix of `rows` rows is passed as its array and that number. Large products go to a kernel in single precision,
// unless the layer is `exact`; all else is computed in double precision, which is as fast in JavaScript.

import { makeKernel } from "./kernel.js";

let kernel = makeKernel();
let large = 4096; // multiplications from which on the kernel's copies pay

/** Use the kernel from so many multiplications on: 0 always, Infinity never. Tells whether there is one. */
export function useKernel(from) {
  large = from;
  return kernel !== null;
}

/** y = x Wᵀ + b for each row of x [rows, in]; W is [out, in]. Two rows and four outputs at a time. */
export function linear(x, rows, layer, out = new Float64Array(rows * layer.out)) {
  const { weight, bias, in: dim, out: size } = layer;
  if (kernel && !layer.exact && rows * dim * size >= large) return kernel(x, rows, layer, out);
  let row = 0;
  for (; row + 1 < rows; row += 2) pairOfRows(x, row * dim, weight, bias, dim, size, out, row * size);
  if (row < rows) oneRow(x, row * dim, weight, bias, dim, size, out, row * size);
  return out;
}

function pairOfRows(x, start, weight, bias, dim, size, out, to) {
  let o = 0;
  for (; o + 3 < size; o += 4) {
    let a0 = 0, a1 = 0, a2 = 0, a3 = 0, b0 = 0, b1 = 0, b2 = 0, b3 = 0;
    let w0 = o * dim, w1 = w0 + dim, w2 = w1 + dim, w3 = w2 + dim;
    for (let i = start, j = start + dim, end = start + dim; i < end; i++, j++) {
      const u = x[i], v = x[j];
      const p0 = weight[w0++], p1 = weight[w1++], p2 = weight[w2++], p3 = weight[w3++];
      a0 += u * p0; a1 += u * p1; a2 += u * p2; a3 += u * p3;
      b0 += v * p0; b1 += v * p1; b2 += v * p2; b3 += v * p3;
    }
    const c0 = bias ? bias[o] : 0, c1 = bias ? bias[o + 1] : 0;
    const c2 = bias ? bias[o + 2] : 0, c3 = bias ? bias[o + 3] : 0;
    const first = to + o, second = to + size + o;
    out[first] = a0 + c0; out[first + 1] = a1 + c1; out[first + 2] = a2 + c2; out[first + 3] = a3 + c3;
    out[second] = b0 + c0; out[second + 1] = b1 + c1; out[second + 2] = b2 + c2; out[second + 3] = b3 + c3;
  }
  for (; o < size; o++) {
    out[to + o] = dot(x, start, weight, o * dim, dim) + (bias ? bias[o] : 0);
    out[to + size + o] = dot(x, start + dim, weight, o * dim, dim) + (bias ? bias[o] : 0);
  }
}

function oneRow(x, start, weight, bias, dim, size, out, to) {
  for (let o = 0; o < size; o++) out[to + o] = dot(x, start, weight, o * dim, dim) + (bias ? bias[o] : 0);
}

/** Product of `length` numbers of a and b, from two places on. */
export function dot(a, from, b, at, length) {
  let sum = 0;
  for (let i = 0; i < length; i++) sum += a[from + i] * b[at + i];
  return sum;
}

/** max(·, 0), in place. */
export function relu(x) {
  for (let i = 0; i < x.length; i++) if (!(x[i] > 0)) x[i] = 0;
  return x;
}

/** x Φ(x), in place. */
export function gelu(x) {
  for (let i = 0; i < x.length; i++) x[i] = 0.5 * x[i] * (1 + erf(x[i] * Math.SQRT1_2));
  return x;
}

/**
 * The error function to 1e-12: its Taylor series near 0, the continued fraction of erfc (Lentz) elsewhere, read from a
 * table with cubic interpolation, because a network calls it ten thousand times for each picture.
 */
export function erf(x) {
  const z = Math.abs(x);
  if (z >= LAST) return x < 0 ? -1 : 1;
  const place = z * DENSITY, i = Math.floor(place), t = (place - i) / DENSITY, a = TABLE[i];
  // erf' = c e^(−z²), and each further derivative follows from it: four terms of Taylor's series from the node.
  const node = i / DENSITY, slope = SLOPE[i];
  const third = (t * (2 * node * node - 1)) / 3, fourth = (t * t * node * (2 * node * node - 3)) / 6;
  const value = a + slope * t * (1 - t * (node - third + fourth));
  return x < 0 ? -value : value;
}

const DENSITY = 256, LAST = 6;
const TABLE = Float64Array.from({ length: LAST * DENSITY + 1 }, (_, i) => erfExact(i / DENSITY));
const SLOPE = TABLE.map((_, i) => (2 / Math.sqrt(Math.PI)) * Math.exp(-((i / DENSITY) ** 2)));

function erfExact(z) {
  if (z < 2.5) {
    let term = z, sum = z;
    for (let n = 1; Math.abs(term) > 1e-17 * sum; n++) {
      term *= (-z * z) / n;
      sum += term / (2 * n + 1);
    }
    return (2 / Math.sqrt(Math.PI)) * sum;
  }
  let fraction = z;
  for (let n = 60; n > 0; n--) fraction = z + n / 2 / fraction;
  return 1 - Math.exp(-z * z) / (Math.sqrt(Math.PI) * fraction);
}

/** ln(1 + eˣ), without overflow. */
export const softplus = (x) => (x > 30 ? x : Math.log1p(Math.exp(x)));

/** Normalise each row of x [rows, width] to zero mean and unit variance, then scale and shift. */
export function layerNorm(x, rows, norm) {
  const width = norm.weight.length, out = new Float64Array(x.length);
  for (let row = 0; row < rows; row++) {
    const at = row * width;
    let mean = 0, square = 0;
    for (let i = 0; i < width; i++) mean += x[at + i];
    mean /= width;
    for (let i = 0; i < width; i++) square += (x[at + i] - mean) ** 2;
    const factor = 1 / Math.sqrt(square / width + 1e-5);
    for (let i = 0; i < width; i++) out[at + i] = (x[at + i] - mean) * factor * norm.weight[i] + norm.bias[i];
  }
  return out;
}

/** Add b to a, in place. */
export function add(a, b) {
  for (let i = 0; i < a.length; i++) a[i] += b[i];
  return a;
}

/** Mean over the rows of x [rows, width]; zeros for a set without rows. */
export function meanOfRows(x, rows, width) {
  const out = new Float64Array(width);
  for (let row = 0; row < rows; row++) for (let i = 0; i < width; i++) out[i] += x[row * width + i];
  if (rows) for (let i = 0; i < width; i++) out[i] /= rows;
  return out;
}

/**
 * Multi-head attention of queries [targets, width] to slots: softmax(q·k / √d + …) v, [targets, widthOfValues].
 *
 * slots = { keys: [count, width], values: [count, widthOfValues], count }. `change(scores, target)` may change the
 * scores [heads, count] of a target before the softmax. Without slots the answer is zero.
 */
export function attend(queries, targets, slots, heads, change = null) {
  const { keys, values, count } = slots;
  const width = count ? keys.length / count : 0, valueWidth = count ? values.length / count : slots.valueWidth;
  const out = new Float64Array(targets * valueWidth);
  if (!count) return out;
  const d = width / heads, dv = valueWidth / heads, scale = 1 / Math.sqrt(d);
  const scores = new Float64Array(heads * count);
  for (let t = 0; t < targets; t++) {
    for (let h = 0; h < heads; h++)
      products(queries, t * width + h * d, keys, h * d, width, d, count, scale, scores, h * count);
    if (change) change(scores, t);
    for (let h = 0; h < heads; h++)
      average(scores, h * count, count, values, valueWidth, h * dv, dv, out, t * valueWidth + h * dv);
  }
  return out;
}

/** Scaled products of a query with the keys of a head, four keys at a time. */
function products(queries, q, keys, first, width, d, count, scale, scores, to) {
  let n = 0;
  for (; n + 3 < count; n += 4) {
    let a = 0, b = 0, c = 0, e = 0;
    let k0 = n * width + first, k1 = k0 + width, k2 = k1 + width, k3 = k2 + width;
    for (let i = q; i < q + d; i++) {
      const value = queries[i];
      a += value * keys[k0++]; b += value * keys[k1++]; c += value * keys[k2++]; e += value * keys[k3++];
    }
    scores[to + n] = scale * a; scores[to + n + 1] = scale * b;
    scores[to + n + 2] = scale * c; scores[to + n + 3] = scale * e;
  }
  for (; n < count; n++) scores[to + n] = scale * dot(queries, q, keys, n * width + first, d);
}

/** The mean of some columns of the values, weighted by a softmax of scores. */
function average(scores, from, count, values, width, column, size, out, to) {
  let top = -Infinity, total = 0;
  for (let n = 0; n < count; n++) top = Math.max(top, scores[from + n]);
  for (let n = 0; n < count; n++) total += scores[from + n] = Math.exp(scores[from + n] - top);
  for (let n = 0; n < count; n++) {
    const weight = scores[from + n] / total, at = n * width + column;
    for (let i = 0; i < size; i++) out[to + i] += weight * values[at + i];
  }
}
