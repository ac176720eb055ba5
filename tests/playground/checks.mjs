// Checks of the page's own mathematics that need no torch: node checks.mjs PAGE FIXTURE.json; prints JSON.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [page, fixture] = process.argv.slice(2);
const module = (name) => import(pathToFileURL(`${page}/js/${name}`));
const given = JSON.parse(readFileSync(fixture, "utf-8"));
const gp = await module("gp.js"),
  physics = await module("physics.js");
const { moments } = await module("predictive.js"),
  { erf } = await module("tensor.js");
const { half } = await module("weights.js"),
  { normals, turning } = await module("random.js");
const { anchors } = await module("jobs.js");
const list = (value) =>
  Object.fromEntries(
    Object.entries(value).map(([key, part]) => [key, ArrayBuffer.isView(part) ? [...part] : part]),
  );

const { points, places, process: one, count } = given.gp;
const all = gp.processes(given.domain);
console.log(
  JSON.stringify({
    exact: given.gp.kernels.map((kernel) => list(gp.exact(points, places, { ...one, kernel }))),
    functions: [...gp.functions(points, places, one, count, 3)],
    prior: [...gp.functions([], places, one, count, 4)],
    averaged: list(gp.averaged(points, places, all)),
    processes: all,
    tails: given.tails.map(([value, n]) => gp.chiSquareTail(value, n)),
    moments: list(moments(given.mixture)),
    erf: given.erf.map(erf),
    half: given.half.map((bits) => String(half(bits))),
    normals: [...normals(5, 20000)],
    turned: [...turning(5, 20000, 0.7)],
    steps: given.states.map(({ state, force, mass }) => physics.advance(state, force, mass, 0.1)),
    masses: given.masses.map((mass) => {
      const rest = [0, 0, 0, 0],
        after = physics.advance(rest, 6, mass, given.cart.friction);
      return physics.massOf(physics.changesOf(rest, after, given.cart)[0], 6, given.cart);
    }),
    posterior: physics.massPosterior(given.transitions, given.cart, given.grid),
    anchors: anchors([-2, 2]),
  }),
);
