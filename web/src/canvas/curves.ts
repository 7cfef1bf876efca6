// Counter in one row: mean, minimum and maximum for each column of pixels.

export interface Curve {
  /** Edges of the whole row, visible or not. */
  top: number;
  bottom: number;
  /** Part of the height that may be drawn on. */
  clipTop: number;
  clipBottom: number;
  colour: number;
  /** Shares of the height for each pixel from the left; NaN for missing data. */
  mean: Float32Array;
  min: Float32Array;
  max: Float32Array;
}

/** Opacity below the mean, and between minimum and maximum. */
export const AREA = 0.32;
export const BAND = 0.3;
/** Half the line width of the mean, in pixels. */
export const LINE_PX = 0.75;

/** Curve without values. */
export function emptyCurve(width: number, geometry: Omit<Curve, "mean" | "min" | "max">): Curve {
  const unknown = (): Float32Array => new Float32Array(Math.max(1, Math.ceil(width))).fill(NaN);
  return { ...geometry, mean: unknown(), min: unknown(), max: unknown() };
}

/** Add a value to the columns that it covers; values that share a column are merged. */
export function addValue(
  curve: Curve,
  x0: number,
  x1: number,
  value: { mean: number; min: number; max: number },
): void {
  const first = Math.max(0, Math.floor(x0));
  const next = Math.min(curve.mean.length, Math.max(first + 1, Math.round(x1)));
  for (let column = first; column < next; column++) {
    const before = curve.mean[column] ?? NaN;
    const hasValue = !Number.isNaN(before);
    curve.mean[column] = hasValue ? (before + value.mean) / 2 : value.mean;
    curve.min[column] = hasValue ? Math.min(curve.min[column] ?? 1, value.min) : value.min;
    curve.max[column] = hasValue ? Math.max(curve.max[column] ?? 0, value.max) : value.max;
  }
}
