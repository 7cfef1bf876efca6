// Exponential smoothing of curves, as TensorBoard does it.

/** Smooth a series: an exponential moving average whose first values are not drawn towards zero
 * (bias correction of Adam, https://arxiv.org/abs/1412.6980, section 3). Missing values stay missing
 * and do not change the average. A weight of 0 returns the values. */
export function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  let average = 0;
  let correction = 1;
  return values.map((value) => {
    if (value === null) return null;
    average = average * weight + (1 - weight) * value;
    correction *= weight;
    return average / (1 - correction);
  });
}
