// Models: what `NeuralProcess.predict` computes, from the same weights (see dsvnp/models/*.py).
//
//     summarise(context, noise)   what the context says, once: { x [N, dim_x], y [N, dim_y], count }
//     decode(summary, x, T)       raw outputs of T targets for K draws of z_G and S draws of each z_*, [K, S, T, raw]
//
// Randomness is an argument: noise.global [K, Z] and noise.local [K, S, T, L] are standard normal, the latter [K, S, L]
// if noise.shared says that one serves all targets; without them latents are at their means. Axes as in the library,
// without the one of tasks.

import { GaussianHead, MLP, Trunk, linearOf } from "./layers.js";
import { attend, linear, meanOfRows, softplus } from "./tensor.js";

/** x and y as the encoders read them: embedded where the file has such networks, as they are otherwise. */
class Embeddings {
  constructor(tensors, name) {
    const mlp = (part) => (tensors[`${name}.${part}.first.bias`] ? new MLP(tensors, `${name}.${part}`, true) : null);
    this.nets = { x: mlp("x"), y: mlp("y") };
  }

  x(data, rows) {
    return this.nets.x ? this.nets.x.apply(rows, { data }) : data;
  }

  y(data, rows) {
    return this.nets.y ? this.nets.y.apply(rows, { data }) : data;
  }
}

/** p(z_G | C): encode each point, average, one head. */
class GlobalLatent {
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
    const { mean, scale } = this.head.apply(r, 1), Z = mean.length;
    if (!noise) return { data: mean, count: 1, mean, scale };
    const data = Float64Array.from(noise, (value, i) => mean[i % Z] + scale[i % Z] * value);
    return { data, count: noise.length / Z, mean, scale };
  }
}

/** p(z_* | …) and its draws. */
class LocalPrior {
  constructor(tensors, form) {
    this.net = new MLP(tensors, "local_prior.net", true);
    this.head = new GaussianHead(tensors, "local_prior.head", form);
  }

  /** Draws of z_*, [K, S, T, L], from its inputs at K × T rows. */
  draws(K, T, { local, shared = false }, ...inputs) {
    const { mean, scale } = this.head.apply(this.net.apply(K * T, ...inputs), K * T), L = this.head.size;
    if (!local) return { data: mean, S: 1 };
    const S = local.length / (K * L * (shared ? 1 : T)), data = new Float64Array(K * S * T * L);
    for (let k = 0, at = 0; k < K; k++)
      for (let s = 0; s < S; s++)
        for (let t = 0; t < T; t++)
          for (let i = 0; i < L; i++, at++) {
            const from = (k * T + t) * L + i, slot = shared ? (k * S + s) * L + i : at;
            data[at] = mean[from] + scale[from] * local[slot];
          }
    return { data, S };
  }
}

/** Rows [K, S, T] that take from T rows, from K rows, or from [K, T] rows. */
function indices(K, S, T) {
  const targets = new Int32Array(K * S * T), draws = new Int32Array(K * S * T);
  for (let row = 0; row < K * S * T; row++) {
    targets[row] = row % T;
    draws[row] = Math.floor(row / (S * T));
  }
  return { targets, draws };
}

class Base {
  constructor(tensors, arch) {
    this.arch = arch;
    this.sizes = { global: 0, local: 0 }; // of the noise per draw
    this.decoder = new MLP(tensors, "decoder");
  }

  /** The prediction for targets x [T, dim_x]: { mean, scale: [K, S, T, dim_y], K, S, T, D }. */
  predict(context, x, T, noise = {}) {
    const { raw, K, S } = this.decode(this.summarise(context, noise), x, T, noise);
    return { ...gaussian(raw, K * S * T, this.arch), K, S, T, D: this.arch.dim_y };
  }
}

/** μ and σ of raw outputs [rows, 2 D]. */
function gaussian(raw, rows, { dim_y: D, sigma_floor: floor, sigma_form: form }) {
  const mean = new Float64Array(rows * D), scale = new Float64Array(rows * D);
  const lowest = Math.exp(-12);
  for (let row = 0; row < rows; row++)
    for (let i = 0; i < D; i++) {
      const s = raw[2 * row * D + D + i];
      mean[row * D + i] = raw[2 * row * D + i];
      const sigma = form === "exp" ? floor + Math.exp(-12 + softplus(s + 12)) : floor + (1 - floor) * softplus(s);
      scale[row * D + i] = floor > 0 ? sigma : Math.max(sigma, lowest);
    }
  return { mean, scale };
}

class CNP extends Base {
  constructor(tensors, arch) {
    super(tensors, arch);
    this.embed = new Embeddings(tensors, "embed");
    this.encoder = new MLP(tensors, "encoder", true);
  }

  summarise({ x, y, count }) {
    const inputs = [{ data: this.embed.x(x, count) }, { data: this.embed.y(y, count) }];
    return meanOfRows(this.encoder.apply(count, ...inputs), count, this.encoder.out);
  }

  decode(r, x, T) {
    const all = new Int32Array(T);
    const raw = this.decoder.apply(T, { data: this.embed.x(x, T) }, { data: r, rows: 1, index: all });
    return { raw, K: 1, S: 1 };
  }
}

class NP extends Base {
  constructor(tensors, arch) {
    super(tensors, arch);
    this.embed = new Embeddings(tensors, "embed");
    this.zGlobal = new GlobalLatent(tensors, arch.latent_scale);
    this.sizes.global = this.zGlobal.head.size;
  }

  summarise({ x, y, count }, noise) {
    return this.zGlobal.draws(this.embed.x(x, count), this.embed.y(y, count), count, noise.global);
  }

  decode(z, x, T) {
    const K = z.count, { targets, draws } = indices(K, 1, T);
    const raw = this.decoder.apply(
      K * T,
      { data: this.embed.x(x, T), rows: T, index: targets },
      { data: z.data, rows: K, index: draws },
    );
    return { raw, K, S: 1 };
  }
}

class AttnNP extends NP {
  constructor(tensors, arch) {
    super(tensors, arch);
    this.values = new MLP(tensors, "value_encoder", true);
    this.trunk = tensors["among_context.norm.weight"] ? new Trunk(tensors, "among_context", arch.num_heads) : null;
    this.keys = new MLP(tensors, "attention.embed");
    const several = tensors["attention.mix.weight"];
    this.project = several ? linearOf(tensors, "attention.project_values.weight", "") : null;
    this.mix = several ? linearOf(tensors, "attention.mix.weight", "") : null;
  }

  summarise({ x, y, count }, noise) {
    const inputs = [this.embed.x(x, count), this.embed.y(y, count)];
    let values = this.values.apply(count, { data: inputs[0] }, { data: inputs[1] });
    if (this.trunk) values = this.trunk.among(values, count, inputs[0]).tokens;
    if (this.project) values = linear(values, count, this.project);
    const slots = { keys: this.keys.apply(count, { data: inputs[0] }), values, count, valueWidth: this.values.out };
    return { slots, z: this.zGlobal.draws(inputs[0], inputs[1], count, noise.global) };
  }

  decode({ slots, z }, x, T) {
    const embedded = this.embed.x(x, T), queries = this.keys.apply(T, { data: embedded });
    let local = attend(queries, T, slots, this.arch.num_heads);
    if (this.mix) local = linear(local, T, this.mix);
    const K = z.count, { targets, draws } = indices(K, 1, T);
    const raw = this.decoder.apply(
      K * T,
      { data: embedded, rows: T, index: targets },
      { data: local, rows: T, index: targets },
      { data: z.data, rows: K, index: draws },
    );
    return { raw, K, S: 1 };
  }
}

class DSVNP extends NP {
  constructor(tensors, arch) {
    super(tensors, arch);
    this.local = new LocalPrior(tensors, arch.latent_scale);
    this.sizes.local = this.local.head.size;
  }

  decode(z, x, T, noise = {}) {
    const K = z.count, embedded = this.embed.x(x, T), once = indices(K, 1, T);
    const task = (index) => ({ data: z.data, rows: K, index });
    const place = (index) => ({ data: embedded, rows: T, index });
    const { data, S } = this.local.draws(K, T, noise, task(once.draws), place(once.targets));
    const { targets, draws } = indices(K, S, T);
    const raw = this.decoder.apply(K * S * T, place(targets), task(draws), { data });
    return { raw, K, S };
  }
}

/** Points → tokens → trunk. */
class Backbone {
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

class TNP extends Base {
  constructor(tensors, arch) {
    super(tensors, arch);
    this.backbone = new Backbone(tensors, arch);
  }

  summarise(context) {
    return this.backbone.context(context).memory;
  }

  decode(memory, x, T) {
    return { raw: this.decoder.apply(T, { data: this.backbone.targets(memory, x, T) }), K: 1, S: 1 };
  }
}

class DSVTNP extends Base {
  constructor(tensors, arch) {
    super(tensors, arch);
    this.backbone = new Backbone(tensors, arch);
    this.zGlobal = new GlobalLatent(tensors, arch.latent_scale);
    this.local = new LocalPrior(tensors, arch.latent_scale);
    this.sizes = { global: this.zGlobal.head.size, local: this.local.head.size };
  }

  summarise({ x, y, count }, noise) {
    const { tokens, memory } = this.backbone.context({ x, y, count });
    const { embed } = this.backbone;
    const features = joined(this.#centred(embed.x(x, count), count), tokens, count);
    return { memory, z: this.zGlobal.draws(features, embed.y(y, count), count, noise.global) };
  }

  /** x itself; from the context's mean on if a shift is not to matter. */
  #centred(x, rows) {
    if (!this.backbone.equivariant || !rows) return x;
    const D = x.length / rows, mean = meanOfRows(x, rows, D);
    return x.map((value, i) => value - mean[i % D]);
  }

  decode({ memory, z }, x, T, noise = {}) {
    const h = this.backbone.targets(memory, x, T), K = z.count, once = indices(K, 1, T);
    const task = (index) => ({ data: z.data, rows: K, index });
    const token = (index) => ({ data: h, rows: T, index });
    const { data, S } = this.local.draws(K, T, noise, task(once.draws), token(once.targets));
    const { targets, draws } = indices(K, S, T);
    return { raw: this.decoder.apply(K * S * T, token(targets), task(draws), { data }), K, S };
  }
}

/** Two matrices of the same rows side by side. */
function joined(a, b, rows) {
  const A = rows ? a.length / rows : 0, B = rows ? b.length / rows : 0, out = new Float64Array(a.length + b.length);
  for (let row = 0; row < rows; row++) {
    out.set(a.subarray(row * A, (row + 1) * A), row * (A + B));
    out.set(b.subarray(row * B, (row + 1) * B), row * (A + B) + A);
  }
  return out;
}

const MODELS = { cnp: CNP, np: NP, attnnp: AttnNP, dsvnp: DSVNP, tnp: TNP, dsvtnp: DSVTNP };

/** Make a network of what `readSafetensors` returned. */
export function makeNetwork({ tensors, metadata }) {
  const Model = MODELS[metadata.model];
  if (!Model) throw new Error(`unknown model ${metadata.model}; this page computes ${Object.keys(MODELS).join(", ")}`);
  const network = new Model(tensors, JSON.parse(metadata.architecture));
  network.model = metadata.model;
  return network;
}
