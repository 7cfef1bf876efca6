// Names of the phases of steps and of the categories of traces; one name on all screens.
import { words } from "./text";

const NAMES: Record<string, string> = { memcpy: "copy", runtime: "runtime calls", cpu_exec: "host" };

export function phaseName(key: string): string {
  return NAMES[key] ?? words(key);
}
