// Numbers and shares as text. Rounding happens here and nowhere else in the front end.

export const MISSING = "n/a";

/** An identifier as words. */
export function words(name: string): string {
  return name.replaceAll("_", " ");
}

/** Text with a capital at its start. */
export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Text as a sentence: with a capital at its start and a mark at its end. */
export function sentence(text: string): string {
  return capital(text) + (/[.!?:]$/.test(text) ? "" : ".");
}

/** "1 row", "2 rows". */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${number(count, 0)} ${count === 1 ? one : many}`;
}

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

/** How long something took: in few digits, from two minutes on as people count hours. */
export function lasting(ns: number | null): string {
  return ns !== null && Math.abs(ns) >= 120e9 ? clock(ns / 1e9) : duration(ns);
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

/** Dollars and cents; three digits of what is less than ten cents. */
export function money(usd: number | null): string {
  if (usd === null) return MISSING;
  const digits = usd > 0 && usd < 0.1 ? 2 - Math.floor(Math.log10(usd)) : 2;
  return `$${number(usd, Math.min(12, digits))}`;
}

/** A moment on the reader's clock: 2026-11-22 05:00. */
export function when(ms: number): string {
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return MISSING;
  const padded = (value: number): string => value.toString().padStart(2, "0");
  const day = `${date.getFullYear()}-${padded(date.getMonth() + 1)}-${padded(date.getDate())}`;
  return `${day} ${padded(date.getHours())}:${padded(date.getMinutes())}`;
}
