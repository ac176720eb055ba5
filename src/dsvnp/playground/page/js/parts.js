// Parts that several models are made of (see dsvnp/models/parts.py and the backbone of dsvnp/models/tnp.py).

import { Fourier, GaussianHead, MLP, Trunk } from "./layers.js";
import { meanOfRows, softplus } from "./tensor.js";

/** x and y as the encoders read them: embedded where the file has such networks, as they are otherwise. */
export class Embeddings {
  constructor(tensors, name) {
    const mlp = (part) =>
      tensors[`${name}.${part}.first.bias`] ? new MLP(tensors, `${name}.${part}`, true) : null;
    const waves = tensors[`${name}.x.linear.bias`] ? new Fourier(tensors, `${name}.x`) : null;
    this.nets = { x: waves ?? mlp("x"), y: mlp("y") };
  }

  x(data, rows) {
    return this.nets.x ? this.nets.x.apply(rows, { data }) : data;
  }

  y(data, rows) {
    return this.nets.y ? this.nets.y.apply(rows, { data }) : data;
  }
}

/** p(z_G | C): encode each point, average, one head. */
export class GlobalLatent {
  constructor(tensors, form) {
    const own = tensors["z_global.prior_encoder.first.bias"] ? "prior_" : "";
    const head = `z_global.${own}head`;
    this.encoder = new MLP(tensors, `z_global.${own}encoder`, true);
    this.before = tensors[`${head}.0.first.bias`] ? new MLP(tensors, `${head}.0`, true) : null;
    this.head = new GaussianHead(tensors, this.before ? `${head}.1` : head, form);
  }

  /** Draws of z_G, { data: [K, Z], count: K }. */
  draws(x, y, rows, noise) {
    let r = meanOfRows(this.encoder.apply(rows, { data: x }, { data: y }), rows, this.encoder.out);
    if (this.before) r = this.before.apply(1, { data: r });
    const { mean, scale } = this.head.apply(r, 1),
      Z = mean.length;
    if (!noise) return { data: mean, count: 1, mean, scale };
    const data = Float64Array.from(noise, (value, i) => mean[i % Z] + scale[i % Z] * value);
    return { data, count: noise.length / Z, mean, scale };
  }
}

/** p(z_* | …) and its draws. */
export class LocalPrior {
  constructor(tensors, form) {
    this.net = new MLP(tensors, "local_prior.net", true);
    this.head = new GaussianHead(tensors, "local_prior.head", form);
  }

  /** Draws of z_*, [K, S, T, L], from its inputs at K × T rows. */
  draws(K, T, { local, shared = false }, ...inputs) {
    const { mean, scale } = this.head.apply(this.net.apply(K * T, ...inputs), K * T),
      L = this.head.size;
    if (!local) return { data: mean, S: 1 };
    const S = local.length / (K * L * (shared ? 1 : T)),
      data = new Float64Array(K * S * T * L);
    for (let k = 0, at = 0; k < K; k++)
      for (let s = 0; s < S; s++)
        for (let t = 0; t < T; t++)
          for (let i = 0; i < L; i++, at++) {
            const from = (k * T + t) * L + i,
              slot = shared ? (k * S + s) * L + i : at;
            data[at] = mean[from] + scale[from] * local[slot];
          }
    return { data, S };
  }
}

/** Rows [K, S, T] that take from T rows, from K rows, or from [K, T] rows. */
export function indices(K, S, T) {
  const targets = new Int32Array(K * S * T),
    draws = new Int32Array(K * S * T);
  for (let row = 0; row < K * S * T; row++) {
    targets[row] = row % T;
    draws[row] = Math.floor(row / (S * T));
  }
  return { targets, draws };
}

/** μ and σ of raw outputs [rows, 2 D]. */
export function gaussian(raw, rows, { dim_y: D, sigma_floor: floor, sigma_form: form }) {
  const mean = new Float64Array(rows * D),
    scale = new Float64Array(rows * D);
  const lowest = Math.exp(-12);
  for (let row = 0; row < rows; row++)
    for (let i = 0; i < D; i++) {
      const s = raw[2 * row * D + D + i];
      mean[row * D + i] = raw[2 * row * D + i];
      const sigma =
        form === "exp" ? floor + Math.exp(-12 + softplus(s + 12)) : floor + (1 - floor) * softplus(s);
      scale[row * D + i] = floor > 0 ? sigma : Math.max(sigma, lowest);
    }
  return { mean, scale };
}

/** Points → tokens → trunk. */
export class Backbone {
  constructor(tensors, arch) {
    this.embed = new Embeddings(tensors, "backbone.embed");
    this.embedder = new MLP(tensors, "backbone.embedder");
    this.trunk = new Trunk(tensors, "backbone.trunk", arch.transformer.num_heads);
    this.equivariant = arch.transformer.equivariant;
    this.dimY = arch.dim_laty ?? arch.dim_y;
    this.flags = arch.dim_y;
  }

  #tokens(x, y, seen, rows) {
    const inputs = [{ data: y }, { data: new Float64Array(rows * this.flags).fill(seen) }];
    return this.embedder.apply(rows, ...(this.equivariant ? [] : [{ data: x }]), ...inputs);
  }

  context({ x, y, count }) {
    const tokens = this.#tokens(this.embed.x(x, count), this.embed.y(y, count), 1, count);
    return this.trunk.among(tokens, count, x);
  }

  targets(memory, x, T) {
    const tokens = this.#tokens(this.embed.x(x, T), new Float64Array(T * this.dimY), 0, T);
    return this.trunk.onto(tokens, T, x, memory);
  }
}

/** Two matrices of the same rows side by side. */
export function joined(a, b, rows) {
  const A = rows ? a.length / rows : 0,
    B = rows ? b.length / rows : 0,
    out = new Float64Array(a.length + b.length);
  for (let row = 0; row < rows; row++) {
    out.set(a.subarray(row * A, (row + 1) * A), row * (A + B));
    out.set(b.subarray(row * B, (row + 1) * B), row * (A + B) + A);
  }
  return out;
}
