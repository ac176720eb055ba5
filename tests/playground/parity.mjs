// Compute what fixtures ask for: node parity.mjs PAGE FIXTURE.json, which names a file of weights, inputs and noise.
// Prints means and scales as JSON.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [page, fixture] = process.argv.slice(2);
const module = (name) => import(pathToFileURL(`${page}/js/${name}`));
const { makeNetwork } = await module("models.js");
const { readSafetensors } = await module("weights.js");

const cases = JSON.parse(readFileSync(fixture, "utf-8")).map(({ weights, x, y, count, target, T, noise }) => {
  const bytes = readFileSync(weights);
  const network = makeNetwork(readSafetensors(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)));
  const { mean, scale } = network.predict({ x: Float64Array.from(x), y: Float64Array.from(y), count }, Float64Array.from(target), T, noise);
  return { mean: [...mean], scale: [...scale], sizes: network.sizes };
});
console.log(JSON.stringify(cases));
