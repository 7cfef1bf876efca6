// Quantities as text: the twin of src/stepscope/quantities.py, which states the policy. Both are
// tested on tests/golden/quantities.json. Rounding happens here and nowhere else on the page.

export const MISSING = "n/a";
/** Text where there is nothing of a kind, in contrast to what is unknown. */
export const NONE = "none";

const BINARY_PREFIXES = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
const FILE_PREFIXES = ["", "k", "M", "G", "T", "P"];
const SI_PREFIXES = ["", "k", "M", "G", "T", "P", "E"];
const TIME_UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]] as const;
const NANOSECOND = ["ns", 1] as const;
/** Durations that round to two minutes or more are written in minutes. */
const MAX_SECONDS = 119.5;
const MAX_HOURS_WITH_MINUTES = 100;
/** Longer durations are written in days: machines are billed by the hour, so hours are used far
 * beyond a day. */
const MAX_HOURS = 1000;
/** Smaller amounts in the unit of hours, as of machines, are written as below it. */
const MIN_HOURS = 0.001;
/** Numbers outside this range are written with an exponent. */
const MIN_PLAIN = 1e-4;
const MAX_PLAIN = 1e15;
/** Smaller amounts are written with three significant digits rather than cents. */
const MIN_CENTS_USD = 0.1;

type Quantity = number | null;

/** Format a number with a fixed count of decimals and thousands separators. */
export function fixed(value: Quantity, decimals: number): string {
  if (!isNumber(value)) return MISSING;
  const text = formatter(`fixed ${decimals}`, { minimumFractionDigits: decimals, maximumFractionDigits: decimals }).format(value);
  return /[1-9]/.test(text) ? text : text.replace("-", "");
}

/** Format a number with a fixed count of decimals, or with three significant digits where it would
 * read as zero and is not. */
export function figure(value: Quantity, decimals: number): string {
  const text = fixed(value, decimals);
  return value !== 0 && isNumber(value) && !/[1-9]/.test(text) ? number(value) : text;
}

/** Format a number with that many significant digits, keeping all digits before the point. */
export function number(value: Quantity, digits = 3): string {
  if (!isNumber(value)) return MISSING;
  const size = Math.abs(value);
  if (size > 0 && (size < MIN_PLAIN || size >= MAX_PLAIN)) {
    return formatter(`scientific ${digits}`, { notation: "scientific", maximumSignificantDigits: digits }).format(value).toLowerCase();
  }
  if (size >= 10 ** digits - 0.5) return fixed(value, 0);
  return formatter(`significant ${digits}`, { maximumSignificantDigits: digits }).format(value);
}

/** Format a count: whole numbers in full, means of counts with three significant digits. */
export function count(value: Quantity): string {
  return Number.isInteger(value) ? fixed(value, 0) : number(value);
}

/** Format a count with its noun: "1 row", "2 rows". */
export function countOf(value: number, singular: string, plural = `${singular}s`): string {
  return `${count(value)} ${value === 1 ? singular : plural}`;
}

/** Format a duration in nanoseconds, in the unit that keeps it readable. */
export function duration(ns: Quantity): string {
  if (!isNumber(ns)) return MISSING;
  const size = Math.abs(ns);
  if (size >= MAX_SECONDS * 1e9) return `${ns < 0 ? "-" : ""}${longDuration(size)}`;
  const [unit, scale] = timeUnit(size, 0.9995);
  return `${number(ns / scale)} ${unit}`;
}

/** Return the largest unit of which a time has at least `minCount`, and its nanoseconds. */
export function timeUnit(ns: number, minCount = 1): readonly [string, number] {
  return TIME_UNITS.find(([, scale]) => ns >= minCount * scale) ?? NANOSECOND;
}

/** Format a ratio as a percentage; a positive ratio that rounds to zero is `<1%`. */
export function percent(ratio: Quantity, decimals = 0): string {
  return ratio === null ? MISSING : percentage(100 * ratio, decimals);
}

/** Format an amount of memory in binary units. */
export function memory(bytes: Quantity): string {
  return prefixed(bytes, 1024, BINARY_PREFIXES, "B");
}

/** Format the size of a file or of data on a disk or link, in decimal units. */
export function fileSize(bytes: Quantity): string {
  return prefixed(bytes, 1000, FILE_PREFIXES, "B");
}

/** Format a rate of a disk, link or memory bus in decimal units. */
export function byteRate(bytesPerSecond: Quantity): string {
  return prefixed(bytesPerSecond, 1000, FILE_PREFIXES, "B/s");
}

/** Format a value with an SI prefix. */
export function scaled(value: Quantity, unit: string): string {
  return prefixed(value, 1000, SI_PREFIXES, unit);
}

/** Format US dollars with cents; below ten cents, with three significant digits. */
export function dollars(usd: Quantity): string {
  if (!isNumber(usd)) return MISSING;
  const size = Math.abs(usd);
  const decimals = size > 0 && size < MIN_CENTS_USD ? 2 - Math.floor(Math.log10(size)) : 2;
  return `${usd < 0 ? "-" : ""}$${fixed(size, Math.min(12, decimals))}`;
}

/** Format a factor, such as a speedup. */
export function multiple(ratio: Quantity): string {
  return isNumber(ratio) ? `${number(ratio)}x` : MISSING;
}

const UNIT_SYMBOLS: Record<string, string> = {
  none: "",
  watt: "W",
  megahertz: "MHz",
  celsius: "°C",
  gb_per_s: "GB/s",
  flop_per_byte: "FLOP/B",
};

const FORMATS: Record<string, (value: number) => string> = {
  ns: duration,
  ratio: (value) => percent(value, 1),
  percent: (value) => percentage(value, 1),
  bytes_per_s: byteRate,
  bytes: memory,
  per_s: (value) => scaled(value, "/s"),
  flop_per_s: (value) => scaled(value, "FLOP/s"),
  flop: (value) => scaled(value, "FLOP"),
  count,
  hours: (value) => (value > 0 && value < MIN_HOURS ? `<${MIN_HOURS} h` : `${count(value)} h`),
  usd: dollars,
  none: (value) => (Number.isInteger(value) ? fixed(value, 0) : number(value, 4)),
};

/** Format a value in the unit that a schema, payload or field name declares. */
export function inUnit(value: Quantity, unit: string): string {
  if (!isNumber(value)) return MISSING;
  const format = FORMATS[unit];
  if (format !== undefined) return format(value);
  return `${count(value)} ${UNIT_SYMBOLS[unit] ?? unit.replaceAll("_", " ")}`.trimEnd();
}

/** Format a difference of two values of a unit with its sign; of shares in percentage points. */
export function change(value: Quantity, unit: string): string {
  if (!isNumber(value)) return MISSING;
  const sign = value > 0 ? "+" : "";
  if (unit === "ratio" || unit === "percent") return `${sign}${fixed(unit === "ratio" ? 100 * value : value, 1)} pp`;
  return `${sign}${inUnit(value, unit)}`;
}

/** Format a change as a share of the value before. */
export function relativeChange(ratio: Quantity, decimals = 1): string {
  return isNumber(ratio) ? `${ratio > 0 ? "+" : ""}${fixed(100 * ratio, decimals)}%` : MISSING;
}

const formatters = new Map<string, Intl.NumberFormat>();

/** Return a cached formatter: they are slow to construct, and a table has thousands of cells. */
function formatter(key: string, options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const cached = formatters.get(key) ?? new Intl.NumberFormat("en-US", options);
  formatters.set(key, cached);
  return cached;
}

function isNumber(value: Quantity): value is number {
  return Number.isFinite(value);
}

function percentage(value: number, decimals: number): string {
  if (!isNumber(value)) return MISSING;
  const smallest = 10 ** -decimals;
  return value > 0 && value < 0.5 * smallest ? `<${fixed(smallest, decimals)}%` : `${fixed(value, decimals)}%`;
}

function longDuration(size: number): string {
  const seconds = Math.floor(size / 1e9 + 0.5);
  if (seconds < 3600) return twoUnits(seconds, "min", "s");
  const minutes = Math.floor(size / 60e9 + 0.5);
  if (minutes < 60 * MAX_HOURS_WITH_MINUTES) return twoUnits(minutes, "h", "min");
  const hours = size / 3600e9;
  return hours < MAX_HOURS ? `${number(hours)} h` : `${number(hours / 24)} d`;
}

function twoUnits(value: number, large: string, small: string): string {
  const rest = value % 60;
  return `${count(Math.floor(value / 60))} ${large}${rest === 0 ? "" : ` ${rest} ${small}`}`;
}

function prefixed(value: Quantity, step: number, prefixes: readonly string[], unit: string): string {
  if (!isNumber(value)) return MISSING;
  let power = 0;
  while (Math.abs(value) / step ** power >= step - 0.5 && power < prefixes.length - 1) power += 1;
  return `${number(value / step ** power)} ${prefixes[power] ?? ""}${unit}`;
}
