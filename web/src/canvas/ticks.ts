// Tick positions and labels of the ruler.
import { timeUnit } from "../base/quantities";
export interface Tick {
  ns: number;
  label: string;
}

export interface Ruler {
  ticks: Tick[];
  /** Nanoseconds between ticks. */
  step: number;
  /** Offset that the labels are relative to, such as `12.345 s +`; null for the origin. */
  anchor: string | null;
}

const SECOND = 1e9;
/** Steps of seconds, minutes, hours and days. */
const LONG_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

/** Return the smallest round step of at least `minStepNs`. */
export function tickStep(minStepNs: number): number {
  if (minStepNs > SECOND / 2) {
    const longStep = LONG_STEPS.find((seconds) => seconds * SECOND >= minStepNs);
    if (longStep !== undefined) return longStep * SECOND;
    return Math.ceil(minStepNs / (86400 * SECOND)) * 86400 * SECOND;
  }
  const power = 10 ** Math.floor(Math.log10(Math.max(1, minStepNs)));
  for (const factor of [1, 2, 5]) if (factor * power >= minStepNs) return factor * power;
  return 10 * power;
}

/** Compute the ticks of a window; labels are relative to `zero`. */
export function rulerMarks(from: number, to: number, pixels: number, zero = 0, minLabelPx = 96): Ruler {
  const step = tickStep(((to - from) * minLabelPx) / Math.max(1, pixels));
  const anchor = anchorTime(from - zero, to - from);
  const first = Math.ceil((from - zero) / step);
  const last = Math.floor((to - zero) / step);
  const ticks: Tick[] = [];
  for (let index = first; index <= last && ticks.length < 200; index++) {
    const tickNs = index * step;
    ticks.push({ ns: zero + tickNs, label: anchor === 0 ? tickLabel(tickNs, step) : `+${tickLabel(tickNs - anchor, step)}` });
  }
  return { ticks, step, anchor: anchor === 0 ? null : `${exactTime(anchor)} +` };
}

/** Windows far narrower than their distance from zero have labels relative to a round time before
 * them. */
function anchorTime(from: number, spanNs: number): number {
  if (Math.abs(from) < 1000 * spanNs || spanNs >= SECOND) return 0;
  let unit = 1000;
  while (unit < spanNs) unit *= 1000;
  return Math.floor(from / unit) * unit;
}

/** Format a time with as many digits as distinguish ticks of a step. */
export function tickLabel(ns: number, step: number): string {
  if (ns === 0) return "0";
  const sign = ns < 0 ? "-" : "";
  const size = Math.abs(ns);
  if (size >= 60 * SECOND) return sign + clockLabel(size, step);
  const [name, unit] = timeUnit(size);
  const digits = Math.max(0, Math.ceil(Math.log10(unit / step) - 1e-9));
  return `${sign}${(size / unit).toFixed(Math.min(digits, 9))} ${name}`;
}


function clockLabel(ns: number, step: number): string {
  const digits = Math.min(9, Math.max(0, Math.ceil(Math.log10(SECOND / step) - 1e-9)));
  const total = Math.floor(ns / SECOND);
  const part = ns - total * SECOND;
  const fraction =
    digits === 0 ? "" : `.${Math.floor(part / 10 ** (9 - digits)).toString().padStart(digits, "0")}`;
  const two = (value: number): string => value.toString().padStart(2, "0");
  const minutes = Math.floor(total / 60);
  const seconds = two(total % 60) + fraction;
  if (minutes < 60) return `${minutes}:${seconds} min`;
  return `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${seconds} h`;
}

/** Format a time to the nanosecond, without trailing zeros. */
export function exactTime(ns: number): string {
  const sign = ns < 0 ? "-" : "";
  const size = Math.round(Math.abs(ns));
  if (size >= 60 * SECOND) {
    const digits = 10 ** trailingZeros(size);
    return sign + clockLabel(size, Math.min(SECOND, digits));
  }
  const [name, unit] = timeUnit(size);
  const decimals = Math.round(Math.log10(unit));
  const text = (size / unit).toFixed(decimals);
  return `${sign}${decimals === 0 ? text : text.replace(/\.?0+$/, "")} ${name}`;
}

/** Count the trailing zeros of an integer. */
function trailingZeros(value: number): number {
  let count = 0;
  for (let rest = value; rest !== 0 && rest % 10 === 0; rest /= 10) count++;
  return count;
}
