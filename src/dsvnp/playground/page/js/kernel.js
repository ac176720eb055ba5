// The kernel: a matrix product in WebAssembly, four numbers at a time, several times as fast as JavaScript's loop.
//
// The module has one function, out = x Wᵀ + b in single precision, written out here in its bytes (there is no build
// step): four rows and eight outputs at a time, whose 8 sums stay in registers. Where a browser lacks vector
// instructions `makeKernel` returns null, and `tensor.js` uses its own loop in double precision.

const I32 = 0x7f, V128 = 0x7b, VOID = 0x40, PAGE = 65536;
const ROWS = 4, OUTPUTS = 8; // of one block

/** An integer in the format's variable length (LEB128, signed). */
function leb(value) {
  const out = [];
  for (;;) {
    const byte = value & 0x7f;
    value >>= 7;
    if ((value === 0 && !(byte & 0x40)) || (value === -1 && byte & 0x40)) return [...out, byte];
    out.push(byte | 0x80);
  }
}

const get = (local) => [0x20, local];
const set = (local) => [0x21, local];
const number = (value) => [0x41, ...leb(value)];
const plus = [0x6a], times = [0x6c], below = [0x49]; // i32.add, i32.mul, i32.lt_u
const load = (offset) => [0xfd, 0x00, 2, offset];
const splat = (offset) => [0xfd, 0x09, 2, offset];
const store = (offset) => [0xfd, 0x0b, 2, offset];
const vectorPlus = [0xfd, 0xe4, 0x01], vectorTimes = [0xfd, 0xe6, 0x01];
const advance = (local, ...by) => [...get(local), ...by, ...plus, ...set(local)];
/** Repeat a body that advances a local, until the local reaches another. */
const until = (local, end, body) => [0x03, VOID, ...body, ...get(local), ...get(end), ...below, 0x0d, 0, 0x0b];

/** The body of linear(x, xEnd, w, b, dim, size, out): pointers in bytes, dim and size in bytes of a row. */
function body() {
  const [x, xEnd, w, b, dim, size, out, column, wAt, xAt, xStop] = Array(11).keys();
  const rowAt = [11, 12, 13], outAt = [14, 15, 16, 17], sums = [18, 19, 20, 21, 22, 23, 24, 25];
  const w0 = 26, w1 = 27, s = 28;
  const pointers = [xAt, ...rowAt];
  const sum = (k, half) => {
    const target = sums[2 * k + half];
    return [...get(target), ...get(s), ...get(half ? w1 : w0), ...vectorTimes, ...vectorPlus, ...set(target)];
  };
  const inner = [
    ...get(wAt), ...load(0), ...set(w0), ...get(wAt), ...load(16), ...set(w1),
    ...pointers.flatMap((pointer, k) => [...get(pointer), ...splat(0), ...set(s), ...sum(k, 0), ...sum(k, 1)]),
    ...rowAt.flatMap((pointer) => advance(pointer, ...number(4))),
    ...advance(wAt, ...get(size)), ...advance(xAt, ...number(4)),
  ];
  const block = [
    ...get(x), ...set(xAt), ...get(x), ...get(dim), ...plus, ...set(xStop),
    ...rowAt.flatMap((pointer, k) => [...get(x), ...get(dim), ...number(k + 1), ...times, ...plus, ...set(pointer)]),
    ...get(w), ...get(column), ...plus, ...set(wAt),
    ...sums.flatMap((target, i) => [...get(b), ...get(column), ...plus, ...load(16 * (i % 2)), ...set(target)]),
    ...until(xAt, xStop, inner),
    ...outAt.flatMap((pointer, k) => [
      ...get(out), ...get(size), ...number(k), ...times, ...plus, ...get(column), ...plus, ...set(pointer),
      ...[0, 1].flatMap((half) => [...get(pointer), ...get(sums[2 * k + half]), ...store(16 * half)]),
    ]),
    ...advance(column, ...number(4 * OUTPUTS)),
  ];
  const rows = [
    ...number(0), ...set(column), ...until(column, size, block),
    ...advance(x, ...get(dim), ...number(ROWS), ...times), ...advance(out, ...get(size), ...number(ROWS), ...times),
  ];
  const locals = [2, 11, I32, 11, V128];
  return [...locals, ...until(x, xEnd, rows), 0x0b];
}

const section = (id, ...content) => [id, ...unsigned(content.length), ...content];
const text = (string) => [string.length, ...new TextEncoder().encode(string)];
const unsigned = (value) => (value < 128 ? [value] : [(value & 0x7f) | 0x80, ...unsigned(value >> 7)]);

function moduleBytes() {
  const code = body();
  return Uint8Array.from([
    0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
    ...section(1, 1, 0x60, 7, ...Array(7).fill(I32), 0), // one type: seven integers to nothing
    ...section(3, 1, 0), // one function of it
    ...section(5, 1, 0, 16), // a memory of 16 pages at first
    ...section(7, 2, ...text("linear"), 0, 0, ...text("memory"), 2, 0),
    ...section(10, 1, ...unsigned(code.length), ...code),
  ]);
}

/** A function linear(x, rows, layer, out) like that of `tensor.js`, or null where it cannot be had. */
export function makeKernel() {
  let instance;
  try {
    instance = new WebAssembly.Instance(new WebAssembly.Module(moduleBytes()));
  } catch {
    return null;
  }
  const { linear, memory } = instance.exports, places = new WeakMap();
  let used = 16, numbers = new Float32Array(memory.buffer);
  const reserve = (bytes) => {
    const lacking = bytes - memory.buffer.byteLength;
    if (lacking <= 0) return;
    memory.grow(Math.ceil(lacking / PAGE));
    numbers = new Float32Array(memory.buffer);
  };

  /** Weights [out, in] as [in, out], outputs filled up to whole blocks, then the biases; kept for the next time. */
  const place = (layer) => {
    if (places.has(layer.weight)) return places.get(layer.weight);
    const { weight, bias, in: dim, out: size } = layer, padded = Math.ceil(size / OUTPUTS) * OUTPUTS;
    const w = used, b = w + 4 * dim * padded;
    used = b + 4 * padded;
    reserve(used);
    numbers.fill(0, w / 4, used / 4);
    for (let o = 0; o < size; o++) {
      for (let i = 0; i < dim; i++) numbers[w / 4 + i * padded + o] = weight[o * dim + i];
      numbers[b / 4 + o] = bias ? bias[o] : 0;
    }
    places.set(layer.weight, { w, b, padded });
    return places.get(layer.weight);
  };

  return (x, rows, layer, out) => {
    if (!rows) return out;
    const { w, b, padded } = place(layer), { in: dim, out: size } = layer, whole = Math.ceil(rows / ROWS) * ROWS;
    const from = used, to = from + 4 * whole * dim;
    reserve(to + 4 * whole * padded);
    numbers.set(x.subarray(0, rows * dim), from / 4);
    linear(from, to, w, b, 4 * dim, 4 * padded, to);
    for (let row = 0, at = 0; row < rows; row++)
      for (let o = 0, first = to / 4 + row * padded; o < size; o++) out[at++] = numbers[first + o];
    return out;
  };
}
