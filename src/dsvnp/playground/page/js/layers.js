// Layers: the parts of the networks by the names that their weights have in the file (see dsvnp/networks.py and
// dsvnp/models/transformer.py). Sizes are read off the weights.

import { add, attend, gelu, layerNorm, linear, relu } from "./tensor.js";

/** A linear layer whose weight and bias have these names; a layer may lack a bias. */
export function linearOf(tensors, weight, bias) {
  const { data, shape } = tensors[weight];
  return { weight: data, bias: tensors[bias]?.data ?? null, in: shape[1], out: shape[0] };
}

const named = (tensors, name) => linearOf(tensors, `${name}.weight`, `${name}.bias`);
const norm = (tensors, name) => ({
  weight: tensors[`${name}.weight`].data,
  bias: tensors[`${name}.bias`].data,
});

/** Some outputs of a linear layer as a layer of their own. */
function rowsOf({ weight, bias, in: dim }, from, count) {
  return {
    weight: weight.subarray(from * dim, (from + count) * dim),
    bias: bias.subarray(from, from + count),
    in: dim,
    out: count,
  };
}

/** [inputs] → hidden → … → out with ReLU between, the inputs' parts of the first layer kept apart. */
export class MLP {
  constructor(tensors, name, reluOut = false) {
    this.reluOut = reluOut;
    this.first = [];
    for (let i = 0; tensors[`${name}.first.weights.${i}`]; i++)
      this.first.push(linearOf(tensors, `${name}.first.weights.${i}`, i ? "" : `${name}.first.bias`));
    this.rest = [];
    for (let i = 0; tensors[`${name}.rest.${i}.weight`]; i++)
      this.rest.push(named(tensors, `${name}.rest.${i}`));
    this.out = (this.rest.at(-1) ?? this.first[0]).out;
  }

  /** Compute in double precision throughout. */
  exact() {
    for (const layer of [...this.first, ...this.rest]) layer.exact = true;
    return this;
  }

  /**
   * Apply to `rows` rows. Each input is { data, rows, index }: its own rows, and which of them each row takes
   * (an Int32Array; none takes them one by one). What many rows share is projected once.
   */
  apply(rows, ...inputs) {
    const size = this.first[0].out;
    let h = null;
    this.first.forEach((layer, i) => {
      const { data, rows: own = rows, index = null } = inputs[i];
      const part = linear(data, own, layer);
      if (!h && !index) h = part;
      else h = gather(h ?? new Float64Array(rows * size), part, index, rows, size);
    });
    for (const layer of this.rest) h = linear(relu(h), rows, layer);
    return this.reluOut ? relu(h) : h;
  }
}

/** x → W [x, sin(2^k π/4 x), cos(2^k π/4 x)], k = 0 … K − 1. */
export class Fourier {
  constructor(tensors, name) {
    this.layer = named(tensors, `${name}.linear`);
  }

  apply(rows, { data }) {
    if (!rows) return new Float64Array(0);
    const D = data.length / rows,
      K = (this.layer.in / D - 1) / 2,
      waves = new Float64Array(rows * this.layer.in);
    for (let row = 0; row < rows; row++) {
      const to = row * this.layer.in;
      for (let i = 0; i < D; i++) {
        const x = data[row * D + i];
        waves[to + i] = x;
        for (let k = 0; k < K; k++) {
          const angle = Math.fround(Math.PI / 4) * 2 ** k * x; // frequencies are float32 in torch
          waves[to + D + i * K + k] = Math.sin(angle);
          waves[to + D + (D + i) * K + k] = Math.cos(angle);
        }
      }
    }
    return linear(waves, rows, this.layer);
  }
}

/** Add rows of a part, chosen by an index, to h. */
function gather(h, part, index, rows, size) {
  if (!index) return add(h, part);
  for (let row = 0; row < rows; row++) {
    const from = index[row] * size,
      to = row * size;
    for (let i = 0; i < size; i++) h[to + i] += part[from + i];
  }
  return h;
}

/** representation → mean and scale of a latent, each [rows, Z]. */
export class GaussianHead {
  constructor(tensors, name, form) {
    this.layer = named(tensors, `${name}.linear`);
    this.form = form;
    this.size = this.layer.out / 2;
  }

  apply(r, rows) {
    const raw = linear(r, rows, this.layer),
      Z = this.size;
    const mean = new Float64Array(rows * Z),
      scale = new Float64Array(rows * Z);
    for (let row = 0; row < rows; row++)
      for (let i = 0; i < Z; i++) {
        const s = raw[2 * row * Z + Z + i];
        mean[row * Z + i] = raw[2 * row * Z + i];
        scale[row * Z + i] = this.form === "exp" ? Math.exp(s) : 0.1 + 0.9 / (1 + Math.exp(-s));
      }
    return { mean, scale };
  }
}

/** One pre-norm layer of a transformer: attention to the slots, then a feed-forward network. */
class Layer {
  constructor(tensors, name, heads) {
    this.heads = heads;
    for (const part of ["project", "mix", "expand", "contract"])
      this[part] = named(tensors, `${name}.${part}`);
    for (const part of ["norm_attention", "norm_forward"]) this[part] = norm(tensors, `${name}.${part}`);
    this.width = this.mix.out;
    this.parts = [0, 1, 2].map((which) => rowsOf(this.project, which * this.width, this.width)); // queries, keys, values
    this.relative = tensors[`${name}.relative.last.weight`]
      ? new Relative(tensors, `${name}.relative`, heads)
      : null;
  }

  /** What the layer knows of tokens. */
  slots(h, rows, x) {
    const normed = layerNorm(h, rows, this.norm_attention);
    const [, keys, values] = this.parts.map((part, i) => (i ? linear(normed, rows, part) : null));
    return { keys, values, count: rows, x, valueWidth: this.width };
  }

  /** Let tokens attend to slots; changes h. */
  onto(h, rows, x, slots) {
    const queries = linear(layerNorm(h, rows, this.norm_attention), rows, this.parts[0]);
    const change = this.relative && slots.count ? this.relative.change(x, slots.x, rows, slots.count) : null;
    add(h, linear(attend(queries, rows, slots, this.heads, change), rows, this.mix));
    const hidden = gelu(linear(layerNorm(h, rows, this.norm_forward), rows, this.expand));
    return add(h, linear(hidden, rows, this.contract));
  }
}

/** Scores from products of tokens and differences of inputs: s + MLP(s, g(x_i − x_j)), g(d) = d / (1 + |d|). */
class Relative {
  constructor(tensors, name, heads) {
    this.heads = heads;
    this.ofScores = linearOf(tensors, `${name}.first.weights.0`, `${name}.first.bias`);
    this.ofGaps = linearOf(tensors, `${name}.first.weights.1`, "");
    this.last = linearOf(tensors, `${name}.last.weight`, "");
  }

  change(x, xSlots, rows, count) {
    const D = x.length / rows,
      H = this.heads;
    const gaps = new Float64Array(count * D),
      turned = new Float64Array(count * H);
    return (scores, target) => {
      for (let n = 0; n < count; n++) {
        for (let i = 0; i < D; i++) {
          const gap = x[target * D + i] - xSlots[n * D + i];
          gaps[n * D + i] = gap / (1 + Math.abs(gap));
        }
        for (let h = 0; h < H; h++) turned[n * H + h] = scores[h * count + n];
      }
      const hidden = relu(add(linear(turned, count, this.ofScores), linear(gaps, count, this.ofGaps)));
      const more = linear(hidden, count, this.last);
      for (let n = 0; n < count; n++) for (let h = 0; h < H; h++) scores[h * count + n] += more[n * H + h];
    };
  }
}

/** All layers of a transformer and a last norm. */
export class Trunk {
  constructor(tensors, name, heads) {
    this.layers = [];
    for (let i = 0; tensors[`${name}.layers.${i}.mix.weight`]; i++)
      this.layers.push(new Layer(tensors, `${name}.layers.${i}`, heads));
    this.norm = norm(tensors, `${name}.norm`);
  }

  /** Tokens of a context that attend to each other; also the slots of each layer. */
  among(h, rows, x) {
    const memory = [];
    for (const layer of this.layers) {
      memory.push(layer.slots(h, rows, x));
      layer.onto(h, rows, x, memory.at(-1));
    }
    return { tokens: layerNorm(h, rows, this.norm), memory };
  }

  /** Tokens that attend to the slots of a context. */
  onto(h, rows, x, memory) {
    this.layers.forEach((layer, i) => layer.onto(h, rows, x, memory[i]));
    return layerNorm(h, rows, this.norm);
  }
}
