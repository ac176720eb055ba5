// Random numbers that are the same for the same seed: functions hold still while points move.

/** Uniform numbers in [0, 1), by Bryc's sfc32 with a seed of 32 bits. */
export function uniforms(seed) {
  let a = 0x9e3779b9,
    b = 0x243f6a88,
    c = seed | 0,
    d = 1;
  const next = () => {
    const t = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + t) | 0;
    return (t >>> 0) / 4294967296;
  };
  for (let i = 0; i < 15; i++) next(); // the first numbers of neighbouring seeds are alike
  return next;
}

/** Standard normal numbers, by Box and Muller. */
export function normals(seed, count) {
  const next = uniforms(seed),
    out = new Float64Array(count);
  for (let i = 0; i < count; i += 2) {
    const radius = Math.sqrt(-2 * Math.log(1 - next())),
      angle = 2 * Math.PI * next();
    out[i] = radius * Math.cos(angle);
    if (i + 1 < count) out[i + 1] = radius * Math.sin(angle);
  }
  return out;
}

/**
 * Normal numbers that move along a great circle with the phase: cos φ a + sin φ b is standard normal at each φ:
 * an animated function is a draw at every moment.
 */
export function turning(seed, count, phase = 0) {
  const a = normals(seed, count);
  if (!phase) return a;
  const b = normals(seed ^ 0x5bd1e995, count),
    cos = Math.cos(phase),
    sin = Math.sin(phase);
  return a.map((value, i) => cos * value + sin * b[i]);
}

/** A new seed. */
export const freshSeed = () => Math.floor(Math.random() * 2 ** 31);
