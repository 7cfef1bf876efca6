// Texts about rules.
import type { InsightsView, RuleInsight } from "../../api/views";
import { count, countOf, duration } from "../../base/quantities";
import { capitalize } from "../../base/text";

/** Reasons that the line of rules without data names. */
const MAX_REASONS = 3;

/** Turn the name of a rule into words: LowGPUUtilization is "Low GPU utilization". */
export function ruleTitle(name: string): string {
  const parts = name.match(/[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z\d]+|[A-Z]+/g) ?? [name];
  return capitalize(parts.map((part) => (/^[A-Z][a-z]/.test(part) ? part.toLowerCase() : part)).join(" "));
}

/** State which data rules lack. */
export function missingText(groups: InsightsView["not_applicable"]): string {
  const reasons = groups.slice(0, MAX_REASONS).map(({ reason, rules }) => `${reason} (${count(rules.length)})`);
  const rest = groups.length - reasons.length;
  const more = rest > 0 ? ` and ${countOf(rest, "other reason")}` : "";
  return `${reasons.join(", ")}${more}`;
}

/** Extent of the data that violated the condition as text; unknown for a check of the whole run. */
export function triggerTimes({ first_after_ns, last_after_ns }: Pick<RuleInsight, "first_after_ns" | "last_after_ns">): string {
  if (first_after_ns === null || last_after_ns === null) return "Over the whole run";
  const [first, last] = [duration(first_after_ns), duration(last_after_ns)];
  const extent = duration(last_after_ns - first_after_ns);
  if (first === last) return `${first} after the start`;
  return first_after_ns === 0 ? `The first ${extent}` : `From ${first} to ${last} after the start, for ${extent}`;
}
