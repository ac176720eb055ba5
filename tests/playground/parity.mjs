// Compute what fixtures ask for: node parity.mjs PAGE FIXTURE.json FROM; a fixture names a file of weights, inputs and
// noise, FROM says from how many multiplications on the kernel is used. Prints means and scales as JSON.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [page, fixture, from] = process.argv.slice(2);
const module = (name) => import(pathToFileURL(`${page}/js/${name}`));
const { makeNetwork } = await module("models.js");
const { useKernel } = await module("tensor.js");
const { readSafetensors } = await module("weights.js");

if (!useKernel(Number(from))) throw new Error("this Node has no vector instructions for WebAssembly");
const cases = JSON.parse(readFileSync(fixture, "utf-8")).map(({ weights, x, y, count, target, T, noise }) => {
  const bytes = readFileSync(weights);
  const network = makeNetwork(
    readSafetensors(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)),
  );
  const { mean, scale } = network.predict(
    { x: Float64Array.from(x), y: Float64Array.from(y), count },
    Float64Array.from(target),
    T,
    noise,
  );
  return { mean: [...mean], scale: [...scale], sizes: network.sizes };
});
console.log(JSON.stringify(cases));
