// Status of a rule: symbol and word, so that it does not depend on colour.
import type { RuleStatus } from "../api/report";

const SYMBOLS: Record<RuleStatus, string> = {
  IssuesFound: "▲",
  NoIssuesFound: "✓",
  InProgress: "…",
  NotApplicable: "–",
  Stopped: "■",
  Error: "✕",
};

export function RuleStatusBadge({ status }: { status: RuleStatus }) {
  return (
    <span class={`status ${status}`}>
      <span aria-hidden="true">{SYMBOLS[status]}</span> {status}
    </span>
  );
}
