// Rules: what they found, the worst first, then those that passed and those that lack data.
import type { InsightsView, RuleInsight } from "../api/views";
import { count, duration, percent } from "../base/quantities";
import { sentence } from "../base/text";
import { LinkedTable } from "../parts/linked_table";
import { rowKey } from "../parts/row_key";
import { StuckJob } from "../parts/stuck_job";
import { useView } from "../state/fetch";
import { link } from "../state/url";
import { columns } from "../widgets/fields";
import { PageHeader } from "../widgets/page_header";
import { Prose } from "../widgets/prose";
import { ResourceView, QualityNotes, EmptyState } from "../widgets/resource_view";
import { statusWords } from "../widgets/rule_status";
import { RuleCard } from "./insights/card";
import { QuietRule, RuleFold } from "./insights/quiet";
import { missingText, ruleTitle } from "./insights/text";

export default function Insights() {
  const resource = useView("insights");
  return (
    <>
      <PageHeader title="Insights" description={resource.data === null ? null : evaluationText(resource.data)} />
      <StuckJob />
      <ResourceView resource={resource}>{(payload) => <Content payload={payload} />}</ResourceView>
    </>
  );
}

function evaluationText({ source, progress, until_after_ns }: InsightsView): string {
  const origin = source === "recorded" ? "Rules evaluated while the job ran" : "Rules evaluated now";
  return `${origin}${until_after_ns === null || progress !== "running" ? "" : `, up to ${duration(until_after_ns)} after its start`}.`;
}

/** State how many of the findings are in the selected range. */
export function findingsInRangeText({ fired, fired_count }: Pick<InsightsView, "fired" | "fired_count">): string {
  if (fired_count === 0) return "No findings in the run.";
  const share = percent(fired.length / fired_count);
  return `${count(fired.length)} of the run's ${count(fired_count)} findings (${share}) are in the selected range.`;
}

function Content({ payload }: { payload: InsightsView }) {
  if (payload.rules.length === 0) return <EmptyState text={payload.missing ?? "no rule was evaluated"} />;
  const lacking = new Set(payload.not_applicable.flatMap(({ rules }) => rules));
  const isCard = ({ status }: RuleInsight): boolean => status === "IssuesFound" || status === "Error";
  const cards = payload.rules.filter(isCard);
  const quiet = payload.rules.filter((rule) => !isCard(rule) && !lacking.has(rule.rule));
  return (
    <>
      <QualityNotes quality={[]} notes={payload.notes} range={payload.range} />
      {payload.range === null ? null : <p data-testid="findings-of-range">{findingsInRangeText(payload)}</p>}
      {payload.fired.length > 0 || payload.range !== null ? null : (
        <p class="all-clear" data-testid="all-clear">✓ No rule found an issue. Rules judge single metrics; the <a href={link("overview")}>verdict</a> judges the whole step.</p>
      )}
      {cards.map((rule) => <RuleCard key={rule.rule} rule={rule} />)}
      {lacking.size === 0 ? null : (
        <RuleFold testid="not-applicable" rules={[...lacking]} title={`${count(lacking.size)} not applicable${payload.progress === "running" ? " so far" : ""}`} about={missingText(payload.not_applicable)}>
          <MissingInputs payload={payload} />
        </RuleFold>
      )}
      {quiet.length === 0 ? null : (
        <RuleFold testid="passed" rules={quiet.map(({ rule }) => rule)} title={passedText(quiet)} about={quiet.map(({ rule }) => ruleTitle(rule)).join(", ")}>
          <ul class="findings">{quiet.map((rule) => <QuietRule key={rule.rule} rule={rule} />)}</ul>
        </RuleFold>
      )}
      {payload.deliveries.length === 0 ? null : <Deliveries payload={payload} />}
    </>
  );
}

/** State how many rules passed, by status. */
function passedText(rules: readonly RuleInsight[]): string {
  return [...new Set(rules.map(({ status }) => status))]
    .map((status) => `${count(rules.filter((rule) => rule.status === status).length)} ${statusWords(status)}`)
    .join(", ");
}

function MissingInputs({ payload }: { payload: InsightsView }) {
  return (
    <>
      {payload.not_applicable.map(({ reason, explanations, rules }) => (
        <section key={reason} aria-label={sentence(reason)}>
          {explanations.map((text) => <p key={text}><Prose text={sentence(text)} /></p>)}
          <ul class="findings">
            {payload.rules.filter(({ rule }) => rules.includes(rule)).map((rule) => <QuietRule key={rule.rule} rule={rule} />)}
          </ul>
        </section>
      ))}
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
      fields={columns("Delivery", ["rule", { value: ({ rule }) => ruleTitle(rule) }], "action", "target", "state", "try_count", "error")}
    />
  );
}
