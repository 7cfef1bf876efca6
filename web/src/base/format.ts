// Numbers and shares as text. Rounding happens here and nowhere else in the front end.

export const MISSING = "n/a";

/** A number with a fixed count of decimals and separators of thousands. */
export function number(value: number | null, digits: number): string {
  if (value === null) return MISSING;
  return value.toLocaleString("en-US", {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

/** A ratio as a percentage; what is there but rounds to nothing says so. */
export function percent(ratio: number | null, digits = 0): string {
  if (ratio === null) return MISSING;
  const smallest = 0.5 * 10 ** -digits;
  if (ratio > 0 && 100 * ratio < smallest) return `<${number(10 ** -digits, digits)} %`;
  return `${number(100 * ratio, digits)} %`;
}

/** A duration in nanoseconds with three significant digits. */
export function duration(ns: number | null): string {
  if (ns === null) return MISSING;
  for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]] as const) {
    if (Math.abs(ns) >= size) return `${Number((ns / size).toPrecision(3))} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

/** Seconds as people count them: 90 becomes 1:30 min, 3725 becomes 1:02:05 h. */
export function clock(seconds: number): string {
  if (seconds < 60) return `${Number(seconds.toPrecision(3))} s`;
  const whole = Math.round(seconds);
  const padded = (value: number): string => value.toString().padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}:${padded(whole % 60)} min`;
  return `${Math.floor(minutes / 60)}:${padded(minutes % 60)}:${padded(whole % 60)} h`;
}
