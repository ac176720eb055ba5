// Predictive: the mixture over draws as a mean and two variances (see dsvnp/predictive/gaussian.py).

/**
 * Mean, epistemic and aleatoric variance of each target and output, [T, D] each.
 *
 * Epistemic is the variance of the components' means, less what those owe to draws of z_* within a draw of z_G; the rest
 * of the total variance is aleatoric.
 */
export function moments({ mean, scale, K, S, T, D }) {
  const size = T * D,
    count = K * S;
  const average = new Float64Array(size),
    epistemic = new Float64Array(size),
    aleatoric = new Float64Array(size);
  for (let i = 0; i < size; i++) {
    let sum = 0,
      noise = 0,
      spread = 0,
      within = 0;
    for (let c = 0; c < count; c++) sum += mean[c * size + i];
    const m = sum / count;
    for (let k = 0; k < K; k++) {
      let own = 0;
      for (let s = 0; s < S; s++) own += mean[(k * S + s) * size + i] / S;
      for (let s = 0; s < S; s++) {
        const at = (k * S + s) * size + i;
        noise += scale[at] ** 2 / count;
        spread += (mean[at] - m) ** 2 / count;
        if (S > 1) within += (mean[at] - own) ** 2 / (K * (S - 1));
      }
    }
    average[i] = m;
    epistemic[i] = Math.max(0, spread - within);
    aleatoric[i] = Math.max(0, noise + spread - epistemic[i]);
  }
  return { mean: average, epistemic, aleatoric };
}
