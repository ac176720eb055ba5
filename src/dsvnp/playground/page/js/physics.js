// The cart-pole: a cart of unknown mass with a hanging rod (see dsvnp/paper/cartpole/physics.py), and what noisy
// measurements of it say of the mass, exactly.
//
//     ẍ = (2 m l θ̇² sin θ + 3 m g sin θ cos θ + 4 (u − b ẋ)) / D,              D = 4 (M+m) − 3 m cos² θ
//     θ̈ = (−3 m l θ̇² sin θ cos θ − 6 (M+m) g sin θ − 6 (u − b ẋ) cos θ) / (l D)

export const POLE = { mass: 0.5, length: 0.6, gravity: 9.82 };
export const STEP = 0.1; // seconds between measurements

/** d/dt of a state [x, θ, ẋ, θ̇] under a force. */
function derivative([, theta, speed, spin], force, mass, friction) {
  const { mass: m, length: l, gravity: g } = POLE,
    sin = Math.sin(theta),
    cos = Math.cos(theta);
  const total = mass + m,
    push = force - friction * speed,
    swing = m * l * spin ** 2 * sin,
    D = 4 * total - 3 * m * cos ** 2;
  return [
    speed,
    spin,
    (2 * swing + 3 * m * g * sin * cos + 4 * push) / D,
    (-3 * swing * cos - 6 * total * g * sin - 6 * push * cos) / (l * D),
  ];
}

/** The state after some time, by one step of Runge and Kutta; the force is held. */
export function advance(state, force, mass, friction, time = STEP) {
  const along = (slope, dt) => state.map((value, i) => value + dt * slope[i]);
  const a = derivative(state, force, mass, friction);
  const b = derivative(along(a, time / 2), force, mass, friction);
  const c = derivative(along(b, time / 2), force, mass, friction);
  const d = derivative(along(c, time), force, mass, friction);
  return state.map((value, i) => value + (time / 6) * (a[i] + 2 * b[i] + 2 * c[i] + d[i]));
}

/** What a network reads of a state and a force: θ, ẋ, θ̇, u over their units. */
export const inputOf = ([, theta, speed, spin], force, { units }) =>
  [theta, speed, spin, force].map((value, i) => value / units[i]);

/** Changes of ẋ and θ̇ within a step, in the units that a network predicts. */
export function changesOf(before, after, { changes }) {
  return [(after[2] - before[2]) / changes[0], (after[3] - before[3]) / changes[1]];
}

/** Masses that stand for the domain's range. */
export const massGrid = ({ mass: [low, high] }, count = 141) =>
  Array.from({ length: count }, (_, i) => low + ((high - low) * i) / (count - 1));

/**
 * The exact posterior density of the mass on a grid, given transitions { state, force, measured }: the noise of the
 * sensor is Gaussian and known, the prior uniform.
 */
export function massPosterior(transitions, domain, grid = massGrid(domain)) {
  const logs = grid.map((mass) => {
    let sum = 0;
    for (const { state, force, measured } of transitions) {
      const expected = changesOf(state, advance(state, force, mass, domain.friction), domain);
      for (let i = 0; i < 2; i++) sum -= 0.5 * ((measured[i] - expected[i]) / domain.sensor) ** 2;
    }
    return sum;
  });
  const top = Math.max(...logs),
    raw = logs.map((value) => Math.exp(value - top));
  const total = raw.reduce((a, b) => a + b, 0) * (grid[1] - grid[0]);
  return raw.map((value) => value / total);
}

/** The mass of a cart whose speed changes so much under a push from rest; beyond the grid's ends, its ends. */
export function massOf(change, force, domain, grid = massGrid(domain)) {
  const rest = [0, 0, 0, 0],
    at = (mass) => changesOf(rest, advance(rest, force, mass, domain.friction), domain)[0];
  let low = grid[0],
    high = grid.at(-1);
  if (change >= at(low)) return low;
  if (change <= at(high)) return high;
  for (let i = 0; i < 30; i++) {
    const middle = (low + high) / 2;
    if (at(middle) > change)
      low = middle; // the lighter, the faster
    else high = middle;
  }
  return (low + high) / 2;
}
