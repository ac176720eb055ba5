// Weights: a file of safetensors (a header of JSON, then numbers) as Float64Array by name.

/** Read a file's bytes; returns { tensors: { name: { data, shape } }, metadata }. */
export function readSafetensors(buffer) {
  const view = new DataView(buffer);
  const length = Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  const { __metadata__: metadata = {}, ...entries } = header;
  const tensors = {};
  for (const [
    name,
    {
      dtype,
      shape,
      data_offsets: [from, to],
    },
  ] of Object.entries(entries))
    tensors[name] = { data: numbers(view, dtype, 8 + length + from, 8 + length + to), shape };
  return { tensors, metadata };
}

function numbers(view, dtype, from, to) {
  if (dtype === "F16") {
    const out = new Float64Array((to - from) / 2);
    for (let i = 0; i < out.length; i++) out[i] = half(view.getUint16(from + 2 * i, true));
    return out;
  }
  if (dtype !== "F32") throw new Error(`weights must be F16 or F32, got ${dtype}; export the network again`);
  const out = new Float64Array((to - from) / 4);
  for (let i = 0; i < out.length; i++) out[i] = view.getFloat32(from + 4 * i, true);
  return out;
}

/** A number in half precision from its 16 bits: sign, 5 bits of exponent, 10 of mantissa. */
export function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1,
    exponent = (bits >> 10) & 31,
    mantissa = bits & 1023;
  if (exponent === 0) return sign * mantissa * 2 ** -24;
  if (exponent === 31) return mantissa ? NaN : sign * Infinity;
  return sign * (1 + mantissa / 1024) * 2 ** (exponent - 15);
}
