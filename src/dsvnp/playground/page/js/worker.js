// The worker: computes jobs aside, one after the other; the page stays quick. Networks are read once.

import { JOBS } from "./jobs.js";
import { makeNetwork } from "./models.js";
import { readSafetensors } from "./weights.js";

const networks = new Map();

function network(url) {
  if (!url) return null;
  if (!networks.has(url)) networks.set(url, fetched(url));
  return networks.get(url);
}

async function fetched(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  return makeNetwork(readSafetensors(await response.arrayBuffer()));
}

addEventListener("message", async ({ data: { id, job, url, request } }) => {
  try {
    const loaded = await network(url),
      start = performance.now();
    const result = JOBS[job](loaded, request);
    postMessage({ id, result, ms: performance.now() - start });
  } catch (error) {
    postMessage({ id, error: String(error?.message ?? error) });
  }
});
