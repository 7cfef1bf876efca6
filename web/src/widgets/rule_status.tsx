// The status of a rule: a sign and its word, so that it needs no colour.
import type { RuleStatus } from "../api/report";

const SIGNS: Record<RuleStatus, string> = {
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
      <span aria-hidden="true">{SIGNS[status]}</span> {status}
    </span>
  );
}
