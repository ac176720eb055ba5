// The tab of the cart-pole: push a cart whose mass nobody knows, and watch the network find it.

import { Asker } from "./asking.js";
import { button, group, h, panel, perFrame, row, shown, slider, tabBody, tick } from "./dom.js";
import { POLE, STEP, advance, changesOf, inputOf, massGrid, massPosterior } from "./physics.js";
import { Plot } from "./plot.js";
import { freshSeed, normals } from "./random.js";
import { drawScene } from "./scene.js";
import { rgb } from "./theme.js";

const PUSH_STEPS = 3; // measurements of one push, 0.1 s each
const TRIAL = [6, 6, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0]; // the forces of the trial that is predicted
const TIMES = Array.from({ length: TRIAL.length + 1 }, (_, i) => i * STEP);
const BINS = 35;
const TOO_FAST =
  "Outside what the network was trained on: the cart or the pole moved faster than in training. Stop the cart and push again.";

export class CartPole {
  state = [0, 0, 0, 0];
  force = 0;
  left = 0; // steps that the push still lasts
  strength = 5;
  transitions = [];
  revealed = false;
  seed = 5;

  constructor(root, manifest, announce) {
    this.domain = manifest.domains.cartpole;
    this.announce = announce;
    this.grid = massGrid(this.domain);
    this.asker = new Asker(new URL("weights/cartpole.safetensors", document.baseURI).href);
    this.redraw = perFrame(() => this.#draw());
    root.append(this.#layout());
    this.#newCart(0.9);
  }

  #layout() {
    const drawn = (label) => h("canvas", { role: "img", "aria-label": label });
    const [massCanvas, trialCanvas] = [drawn("Probable masses of the cart"), drawn("Where it would roll")];
    const [low, high] = this.domain.mass;
    this.massPlot = new Plot(massCanvas, { x: [low, high], y: [0, 6], ticks: { x: 0.2, y: 2 } });
    this.trialPlot = new Plot(trialCanvas, { x: [0, TIMES.at(-1)], y: [0, 3], ticks: { x: 0.2, y: 1 } });
    this.scene = this.#sceneCanvas();
    for (const each of [this.scene, massCanvas, trialCanvas])
      new ResizeObserver(() => this.redraw()).observe(each);
    this.time = h("span", { class: "time" });
    this.verdict = h("output", { class: "readout" });
    this.warning = h("p", { class: "warning", role: "status" });
    this.count = h("span", { class: "note" });
    const foot = h("footer", {}, this.verdict, this.time);
    this.massPanel = panel("Mass", "in kg; dashed: the exact posterior", "cartpole", massCanvas, foot);
    const pushes = row(
      button("◀ Push left", () => this.#push(-1), { class: "primary" }),
      button("Push right ▶", () => this.#push(1), { class: "primary" }),
      button("Stop the cart", () => this.#rest()),
      this.count,
    );
    pushes.classList.add("centre");
    const trial = panel("Forecast", "position in m, pushed with 6 N for 0.3 s", "trial", trialCanvas);
    const stage = [
      this.warning,
      panel("Push it", "with the buttons, or the arrow keys", "scene", this.scene, pushes),
      h("div", { class: "panels pair" }, this.massPanel, trial),
    ];
    const lead = h("p", { class: "hint" }, "An unknown mass, found from pushes");
    return tabBody("cartpole", lead, stage, this.#controls());
  }

  #sceneCanvas() {
    const label = "A cart with a hanging pole. Left and right arrow push it.";
    const names = { "aria-roledescription": "simulation", "aria-label": label };
    const canvas = h("canvas", { class: "scene", tabindex: 0, role: "application", ...names });
    canvas.addEventListener("keydown", (event) => {
      const direction = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!direction) return;
      event.preventDefault();
      if (!event.repeat) this.#push(direction);
    });
    return canvas;
  }

  #controls() {
    const onchange = (value) => (this.strength = value);
    const force = { min: 1, max: 8, step: 0.5, value: this.strength, text: (v) => `${v} N`, onchange };
    this.reveal = tick("Reveal its mass", false, (on) => {
      this.revealed = on;
      this.redraw();
    });
    const again = button("New draws", () => {
      this.seed = freshSeed();
      this.#ask();
    });
    return [
      group("Push", slider("Force", force)),
      group(
        "Cart",
        row(
          button("New cart", () => this.#newCart()),
          button("Forget the pushes", () => this.#forget()),
        ),
        this.reveal,
        again,
      ),
    ];
  }

  #newCart(mass = null) {
    const [low, high] = this.domain.mass;
    this.mass = mass ?? low + 0.15 + (high - low - 0.3) * Math.random();
    this.revealed = this.reveal.input.checked = false;
    this.#rest();
    this.#forget();
  }

  #rest() {
    Object.assign(this, { state: [0, 0, 0, 0], force: 0, left: 0, elapsed: 0 });
    this.redraw();
  }

  #forget() {
    this.transitions = [];
    this.#ask();
  }

  #push(direction) {
    if (this.left) return;
    const now = this.#now(); // measurements begin with the push
    Object.assign(this, { state: now, force: direction * this.strength, left: PUSH_STEPS, elapsed: 0 });
    this.#run();
  }

  /** The state at this moment, between two whole steps. */
  #now() {
    const { state, force, mass, elapsed } = this;
    return elapsed ? advance(state, force, mass, this.domain.friction, elapsed) : state;
  }

  /** Let time pass while the tab is shown: whole steps are measured while a push lasts. */
  #run() {
    if (this.running) return;
    this.running = true;
    let before = performance.now();
    const frame = (now) => {
      this.elapsed += Math.min(0.05, (now - before) / 1000);
      before = now;
      while (this.elapsed >= STEP) this.#step();
      this.#draw();
      const calm = !this.left && Math.hypot(this.state[2], this.state[3], 3 * this.state[1]) < 0.02;
      this.running = !this.root?.hidden && !calm;
      if (this.running) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  #step() {
    const before = this.state,
      after = advance(before, this.force, this.mass, this.domain.friction);
    this.elapsed -= STEP;
    this.state = after;
    if (!this.left) return;
    const noise = normals(freshSeed(), 2);
    const measured = changesOf(before, after, this.domain).map((v, i) => v + this.domain.sensor * noise[i]);
    const transition = { state: before, force: this.force, measured };
    this.transitions = [...this.transitions, transition].slice(-this.domain.max_context);
    this.left -= 1;
    if (!this.left) {
      this.force = 0;
      this.#ask();
    }
  }

  #ask() {
    const { transitions, domain } = this,
      request = { transitions, domain, seed: this.seed };
    this.posterior = massPosterior(transitions, domain, this.grid);
    this.asker.ask("masses", "masses", { ...request, K: 200 }, (masses, ms) => {
      this.masses = masses;
      this.massPanel.dataset.bandsMs = ms.toFixed(1);
      this.time.textContent = `${ms.toFixed(0)} ms`;
      this.#tell();
      this.redraw();
    });
    this.asker.ask("rollouts", "rollouts", { ...request, K: 24, forces: TRIAL }, (paths) => {
      this.paths = paths;
      this.redraw();
    });
    this.count.textContent = `${transitions.length} of at most ${domain.max_context} measurements`;
    const beyond = (value, i) => Math.abs(value) > domain.limits[i];
    const strange = transitions.some(({ state, force }) => inputOf(state, force, domain).some(beyond));
    this.warning.textContent = strange ? TOO_FAST : "";
  }

  #tell() {
    const sorted = Float64Array.from(this.masses).sort(),
      at = (share) => sorted[Math.round(share * (sorted.length - 1))];
    this.verdict.textContent = `network: ${shown(at(0.5))} kg (90 %: ${shown(at(0.05))} to ${shown(at(0.95))})`;
    this.announce(this.verdict.textContent);
  }

  #draw() {
    drawScene(this.scene, this.#now(), this.force, POLE.length);
    this.#drawMass();
    this.#drawTrial();
  }

  #drawMass() {
    const plot = this.massPlot,
      [low, high] = this.domain.mass;
    if (!this.masses || !plot.fit()) return;
    const counts = new Float64Array(BINS),
      width = (high - low) / BINS;
    for (const mass of this.masses)
      counts[Math.min(BINS - 1, Math.floor((mass - low) / width))] += 1 / (this.masses.length * width);
    const top = Math.max(1, ...this.posterior, ...counts) * 1.1;
    plot.view.y = [0, top];
    plot.ticks.y = top > 8 ? 5 : top > 3 ? 2 : 1;
    plot.clear();
    counts.forEach(
      (value, i) =>
        value &&
        plot.band(
          [low + i * width + 0.003, low + (i + 1) * width - 0.003],
          [0, 0],
          [value, value],
          rgb("model", 0.65),
        ),
    );
    plot.line(this.grid, this.posterior, { colour: rgb("exact"), width: 2, dash: [6, 4] });
    if (this.revealed) plot.upright(this.mass, rgb("truth"), []);
    plot.done();
  }

  #drawTrial() {
    const plot = this.trialPlot,
      n = TIMES.length;
    if (!this.paths || !plot.fit()) return;
    plot.view.y = [-0.1, Math.max(1.5, Math.ceil(2 * Math.max(...this.paths)) / 2)];
    plot.clear();
    for (let k = 0; k * n < this.paths.length; k++)
      plot.line(TIMES, this.paths.subarray(k * n, (k + 1) * n), { colour: rgb("model", 0.6), width: 1 });
    if (this.revealed) {
      let state = [0, 0, 0, 0];
      const path = [
        0,
        ...TRIAL.map((force) => (state = advance(state, force, this.mass, this.domain.friction))[0]),
      ];
      plot.line(TIMES, path, { colour: rgb("truth"), width: 2, dash: [1, 4] });
    }
    plot.done();
  }

  shown() {
    this.redraw();
    this.#run();
  }
}
