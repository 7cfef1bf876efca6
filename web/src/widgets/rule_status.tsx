// Status of a rule: symbol and words, so that it does not depend on colour.
import type { RuleStatus } from "../api/report";

/** Symbol and words of each status, as the terminal writes them. */
const STATUSES: Record<RuleStatus, readonly [string, string]> = {
  IssuesFound: ["▲", "found issues"],
  NoIssuesFound: ["✓", "passed"],
  InProgress: ["…", "passed so far"],
  NotApplicable: ["–", "not applicable"],
  Stopped: ["■", "passed until evaluation stopped"],
  Error: ["✕", "failed"],
};

export function statusWords(status: RuleStatus): string {
  return STATUSES[status][1];
}

export function RuleStatusBadge({ status }: { status: RuleStatus }) {
  const [symbol, text] = STATUSES[status];
  return (
    <span class={`status ${status}`}>
      <span aria-hidden="true">{symbol}</span> {text}
    </span>
  );
}
