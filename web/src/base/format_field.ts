// How the fields of payloads read: the end of a name is the unit of its number.
import { MISSING, lasting, number, percent, words } from "./format";

export type Unit = "ns" | "ratio" | "percent" | "bytes" | "bytes_per_s" | "flop" | "flop_per_s" | "count" | "none";

const ENDINGS: [string, Unit][] = [
  ["_bytes_per_s", "bytes_per_s"],
  ["_flop_per_s", "flop_per_s"],
  ["_percent", "percent"],
  ["_flop", "flop"],
  ["_ratio", "ratio"],
  ["_bytes", "bytes"],
  ["_count", "count"],
  ["_ns", "ns"],
];

/** The unit that a field's name ends in. */
export function unitOf(field: string): Unit {
  return ENDINGS.find(([ending]) => field.endsWith(ending))?.[1] ?? "none";
}

/** A field's name in words, without its unit: `host_self_ns` is `host self`. */
export function title(field: string): string {
  const ending = ENDINGS.find(([each]) => field.endsWith(each))?.[0] ?? "";
  const words = field.slice(0, field.length - ending.length).replaceAll("_", " ").trim();
  return words === "" ? field : words;
}

const UNITS: ReadonlySet<string> = new Set<Unit>([
  "ns", "ratio", "percent", "bytes", "bytes_per_s", "flop", "flop_per_s", "count",
]);
const SIGNS: Record<string, string> = {
  watt: "W", megahertz: "MHz", celsius: "°C", per_s: "/s", hours: "h", usd: "USD",
};

/** What a payload calls a unit, where values of it have a form of their own. */
export function knownUnit(name: string): Unit {
  return UNITS.has(name) ? (name as Unit) : "none";
}

/** The sign of a unit that values are written with as they are; nothing for all others. */
export function unitSign(name: string): string {
  return knownUnit(name) === "none" && name !== "none" ? (SIGNS[name] ?? words(name)) : "";
}

/** A value in a unit that a payload names. */
export function inNamedUnit(value: number | null, name: string): string {
  const sign = unitSign(name);
  return sign === "" || value === null ? inUnit(value, knownUnit(name)) : `${Number(value.toPrecision(4))} ${sign}`;
}

/** A value in its unit. */
export function inUnit(value: number | null, unit: Unit): string {
  if (value === null || Number.isNaN(value)) return MISSING;
  switch (unit) {
    case "ns":
      return lasting(value);
    case "ratio":
      return percent(value, 1);
    case "percent":
      return `${number(value, 1)} %`;
    case "bytes":
      return bytes(value);
    case "bytes_per_s":
      return `${bytes(value)}/s`;
    case "flop":
      return `${scaled(value, 1000, DECIMAL)}FLOP`;
    case "flop_per_s":
      return `${scaled(value, 1000, DECIMAL)}FLOP/s`;
    case "count":
      return number(value, Number.isInteger(value) ? 0 : 2);
    case "none":
      return number(value, Number.isInteger(value) ? 0 : 3);
  }
}

const DECIMAL = ["", "k", "M", "G", "T", "P", "E"];

/** Bytes with three significant digits, in powers of 1024. */
export function bytes(value: number | null): string {
  if (value === null) return MISSING;
  return `${scaled(value, 1024, ["", "Ki", "Mi", "Gi", "Ti", "Pi"])}B`;
}

function scaled(value: number, step: number, prefixes: string[]): string {
  let place = 0;
  while (Math.abs(value) >= step ** (place + 1) && place < prefixes.length - 1) place += 1;
  return `${Number((value / step ** place).toPrecision(3))} ${prefixes[place] ?? ""}`;
}
