// Rules: status, findings, evidence and recommendations.
import type { RuleStatus } from "../api/report";
import type { InsightsView } from "../api/views";
import { count, duration, percent } from "../base/quantities";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { useSelect } from "../parts/url_controls";
import { useText } from "../parts/url_options";
import { useView } from "../state/fetch";
import { columns } from "../widgets/fields";
import { PageHeader } from "../widgets/page_header";
import { ResourceView, QualityNotes, EmptyState } from "../widgets/resource_view";
import { RuleStatusBadge } from "../widgets/rule_status";
import { Rule } from "./insights/rule";

const STATUSES: readonly (readonly [RuleStatus | "all", string])[] = [
  ["all", "all"],
  ["IssuesFound", "issues found"],
  ["NoIssuesFound", "no issues found"],
  ["InProgress", "in progress"],
  ["NotApplicable", "not applicable"],
  ["Stopped", "stopped"],
  ["Error", "error"],
];

export default function Insights() {
  const resource = useView("insights");
  return (
    <>
      <PageHeader title="Insights" description={resource.data === null ? null : evaluationText(resource.data)} />
      <ResourceView resource={resource}>{(payload) => <Content payload={payload} />}</ResourceView>
    </>
  );
}

function evaluationText(payload: InsightsView): string {
  const origin = payload.source === "recorded" ? "Evaluated while the job ran" : "Evaluated now";
  const until = payload.until_after_ns === null ? "" : `, up to ${duration(payload.until_after_ns)} after its start`;
  return `${origin}${until}. A rule triggers at most once per scan interval (${duration(payload.scan_ns)}).`;
}

/** State how many of the findings are in the selected range. */
export function findingsInRangeText({ fired, fired_count }: Pick<InsightsView, "fired" | "fired_count">): string {
  if (fired_count === 0) return "No findings in the run.";
  const share = percent(fired.length / fired_count);
  return `${count(fired.length)} of the run's ${count(fired_count)} findings (${share}) are in the selected range.`;
}

function Content({ payload }: { payload: InsightsView }) {
  const [status, statusSelect] = useSelect("status", "Status", STATUSES);
  const [openRule, setOpenRule] = useText("rule");
  if (payload.rules.length === 0) return <EmptyState text={payload.missing ?? "no rule was evaluated"} />;
  const rows = payload.rules.filter((rule) => status === "all" || rule.status === status);
  const rulesWithIssues = payload.rules.filter((rule) => rule.status === "IssuesFound");
  const selected = payload.rules.find((rule) => rule.rule === openRule) ?? (openRule === "" ? rulesWithIssues[0] : undefined);
  return (
    <>
      <QualityNotes quality={[]} notes={payload.notes} range={payload.range} />
      {payload.range === null ? null : <p data-testid="findings-of-range">{findingsInRangeText(payload)}</p>}
      <LinkedTable
        title={payload.range === null ? `${count(rulesWithIssues.length)} of ${count(payload.rules.length)} rules have findings` : "Rules"}
        testid="table-rules"
        rows={rows}
        onRow={(rule) => { setOpenRule(rule.rule); }}
        selected={selected}
        tools={statusSelect}
        fields={columns(
          "RuleInsight", "rule", ["status", { draw: (rule) => <RuleStatusBadge status={rule.status} /> }],
          "triggered_count", "violation_count", "datapoint_count", "summary",
        )}
      />
      {selected === undefined ? null : <Rule key={selected.rule} rule={selected} />}
      {payload.deliveries.length === 0 ? null : <Deliveries payload={payload} />}
    </>
  );
}

function Deliveries({ payload }: { payload: InsightsView }) {
  return (
    <LinkedTable
      id="deliveries"
      title="Notifications"
      rows={payload.deliveries}
      keyOf={(row) => rowKey(row.action, row.rule)}
      fields={columns("Delivery", "rule", "action", "target", "state", "try_count", "error")}
    />
  );
}
