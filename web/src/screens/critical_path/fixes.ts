// Fixes that are simulated together, as text for the view `what-if`: no-sync+workers=4.
const SEPARATOR = "+";
const FACTOR = "=";

/** Fix of a payload: its name, and its factor where it takes one. */
export interface FixOption {
  name: string;
  factor: string | null;
}

export function parseFix(text: string): FixOption {
  const [name = "", factor = null] = text.split(FACTOR);
  return { name, factor };
}

/** Parse the selected fixes: factors by name, empty for fixes without one. */
export function parseFixes(text: string): Map<string, string> {
  const parts = text.split(SEPARATOR).filter((part) => part !== "").map(parseFix);
  return new Map(parts.map(({ name, factor }) => [name, factor ?? ""]));
}

export function formatFixes(factors: ReadonlyMap<string, string>): string {
  return [...factors].map(([name, factor]) => (factor === "" ? name : `${name}${FACTOR}${factor}`)).join(SEPARATOR);
}

/** Select a fix with a factor, or deselect it. */
export function toggleFix(text: string, { name, factor }: FixOption): string {
  const factors = parseFixes(text);
  if (!factors.delete(name)) factors.set(name, factor ?? "");
  return formatFixes(factors);
}

export function setFactor(text: string, name: string, factor: string): string {
  return formatFixes(parseFixes(text).set(name, factor));
}
