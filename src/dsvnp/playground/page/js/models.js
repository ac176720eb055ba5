// Models: what `NeuralProcess.predict` computes, from the same weights (see dsvnp/models/*.py).
//
//     summarise(context, noise)   what the context says, once: { x [N, dim_x], y [N, dim_y], count }
//     decode(summary, x, T)       raw outputs of T targets for K draws of z_G and S draws of each z_*, [K, S, T, raw]
//
// Randomness is an argument: noise.global [K, Z] and noise.local [K, S, T, L] are standard normal, the latter [K, S, L]
// if noise.shared says that one serves all targets; without them latents are at their means. Axes as in the library,
// without the one of tasks.

import { MLP, Trunk, linearOf } from "./layers.js";
import { Backbone, Embeddings, GlobalLatent, LocalPrior, gaussian, indices, joined } from "./parts.js";
import { attend, linear, meanOfRows } from "./tensor.js";

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
    const K = z.count,
      { targets, draws } = indices(K, 1, T);
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
    this.trunk = tensors["among_context.norm.weight"]
      ? new Trunk(tensors, "among_context", arch.num_heads)
      : null;
    this.keys = new MLP(tensors, "attention.embed").exact(); // a softmax of large scores shows any rounding
    const several = tensors["attention.mix.weight"];
    this.project = several ? linearOf(tensors, "attention.project_values.weight", "") : null;
    this.mix = several ? linearOf(tensors, "attention.mix.weight", "") : null;
  }

  summarise({ x, y, count }, noise) {
    const inputs = [this.embed.x(x, count), this.embed.y(y, count)];
    let values = this.values.apply(count, { data: inputs[0] }, { data: inputs[1] });
    if (this.trunk) values = this.trunk.among(values, count, inputs[0]).tokens;
    if (this.project) values = linear(values, count, this.project);
    const slots = {
      keys: this.keys.apply(count, { data: inputs[0] }),
      values,
      count,
      valueWidth: this.values.out,
    };
    return { slots, z: this.zGlobal.draws(inputs[0], inputs[1], count, noise.global) };
  }

  decode({ slots, z }, x, T) {
    const embedded = this.embed.x(x, T),
      queries = this.keys.apply(T, { data: embedded });
    let local = attend(queries, T, slots, this.arch.num_heads);
    if (this.mix) local = linear(local, T, this.mix);
    const K = z.count,
      { targets, draws } = indices(K, 1, T);
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
    const K = z.count,
      embedded = this.embed.x(x, T),
      once = indices(K, 1, T);
    const task = (index) => ({ data: z.data, rows: K, index });
    const place = (index) => ({ data: embedded, rows: T, index });
    const { data, S } = this.local.draws(K, T, noise, task(once.draws), place(once.targets));
    const { targets, draws } = indices(K, S, T);
    const raw = this.decoder.apply(K * S * T, place(targets), task(draws), { data });
    return { raw, K, S };
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
    const D = x.length / rows,
      mean = meanOfRows(x, rows, D);
    return x.map((value, i) => value - mean[i % D]);
  }

  decode({ memory, z }, x, T, noise = {}) {
    const h = this.backbone.targets(memory, x, T),
      K = z.count,
      once = indices(K, 1, T);
    const task = (index) => ({ data: z.data, rows: K, index });
    const token = (index) => ({ data: h, rows: T, index });
    const { data, S } = this.local.draws(K, T, noise, task(once.draws), token(once.targets));
    const { targets, draws } = indices(K, S, T);
    return { raw: this.decoder.apply(K * S * T, token(targets), task(draws), { data }), K, S };
  }
}

const MODELS = { cnp: CNP, np: NP, attnnp: AttnNP, dsvnp: DSVNP, tnp: TNP, dsvtnp: DSVTNP };

/** Make a network of what `readSafetensors` returned. */
export function makeNetwork({ tensors, metadata }) {
  const Model = MODELS[metadata.model];
  if (!Model)
    throw new Error(`unknown model ${metadata.model}; this page computes ${Object.keys(MODELS).join(", ")}`);
  const network = new Model(tensors, JSON.parse(metadata.architecture));
  network.model = metadata.model;
  return network;
}
