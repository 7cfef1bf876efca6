// One rule: findings, evidence, parameters and documentation.
import type { EvidenceChart, RuleInsight, RuleParameter } from "../../api/views";
import { count, duration } from "../../base/quantities";
import { capitalize, words } from "../../base/text";
import type { Plot } from "../../charts/plot";
import { LinkedTable } from "../../parts/linked_table";
import { TimePanel } from "../../parts/time_panel";
import { timelineAt } from "../../parts/timeline_link";
import { link } from "../../state/url";
import { columns, entries } from "../../widgets/fields";
import { KeyValues } from "../../widgets/key_values";
import { Markdown } from "../../widgets/markdown";
import { Panel } from "../../widgets/panel";
import { Prose } from "../../widgets/prose";
import { EmptyState, ErrorNotice } from "../../widgets/resource_view";
import { RuleStatusBadge } from "../../widgets/rule_status";

export function Rule({ rule }: { rule: RuleInsight }) {
  const lastTrigger = rule.last_after_ns;
  return (
    <div class="rule" data-testid="rule">
      <Panel
        title={rule.rule}
        wide
        isSelection
        tools={
          <>
            <RuleStatusBadge status={rule.status} />
            {lastTrigger === null ? null : (
              <a class="action" href={timelineAt(rule.first_after_ns ?? lastTrigger, lastTrigger)}>Show in timeline</a>
            )}
          </>
        }
      >
        {rule.error === null ? null : <ErrorNotice text={rule.error} />}
        {rule.sentences.length === 0 ? <p>{rule.summary}</p> : <SentenceList sentences={rule.sentences} />}
        {rule.recommendation === "" ? null : <p class="advice"><b>Recommendation:</b> <Prose text={rule.recommendation} /></p>}
        {rule.missing === null ? null : <EmptyState title="Not applicable" text={rule.missing} />}
        <KeyValues entries={ruleFacts(rule)} />
        {rule.evidence.length === 0 ? null : (
          <p class="muted">
            See also{" "}
            {rule.evidence.map((view, index) => (
              <>{index === 0 ? "" : ", "}<a href={link(view)}>{view}</a></>
            ))}
          </p>
        )}
      </Panel>
      <div class="panels spaced">
        {rule.charts.map((chart) => (
          <TimePanel key={chart.title} wide={rule.charts.length === 1} block={plotOf(chart)} />
        ))}
      </div>
      <Parameters rows={rule.parameters} />
      <Panel title={`About ${rule.rule}`} wide>
        <details open={rule.charts.length === 0}>
          <summary>Documentation</summary>
          <Markdown text={rule.page} />
        </details>
      </Panel>
    </div>
  );
}

/** Sentences shown by default; a rule may have one for each of hundreds of ranks. */
const MAX_SENTENCES = 6;

function SentenceList({ sentences }: { sentences: string[] }) {
  const list = (texts: string[]) => <ul>{texts.map((text) => <li key={text}><Prose text={text} /></li>)}</ul>;
  const rest = sentences.slice(MAX_SENTENCES);
  return (
    <>
      {list(sentences.slice(0, MAX_SENTENCES))}
      {rest.length === 0 ? null : (
        <details>
          <summary>{count(rest.length)} more</summary>
          {list(rest)}
        </details>
      )}
    </>
  );
}

/** Upper bound of listed nodes, ranks or devices. */
const MAX_NAMES = 24;

/** Extent of the data that violated the condition as text; unknown for a check of the whole run. */
export function triggerTimes({ triggered_count, first_after_ns, last_after_ns }: RuleInsight): string {
  if (triggered_count === 0) return "never";
  if (first_after_ns === null) return "over the whole run";
  const [first, last] = [duration(first_after_ns), duration(last_after_ns)];
  return first === last ? `${first} after the start` : `from ${first} to ${last} after the start`;
}

function ruleFacts(rule: RuleInsight) {
  const joined = (names: string[]): string => (names.length === 0 ? "all" : names.slice(0, MAX_NAMES).join(", "));
  return entries(
    "RuleInsight", rule, "triggered_count",
    ["violation_count", `${count(rule.violation_count)} of ${count(rule.datapoint_count)} data points`],
    ["Violating data", triggerTimes(rule)],
    ...(["nodes", "ranks", "devices"] as const).map((name) => [name, joined(rule[name])] as const),
  );
}

export function plotOf(chart: EvidenceChart): Plot {
  const { unit } = chart;
  return {
    kind: "plot",
    title: capitalize(words(chart.title)),
    x: { name: "after the start of the run", unit: "ns", min: chart.from_after_ns, max: chart.to_after_ns },
    y: { name: "value", unit, ...(unit === "ratio" ? { max: 1 } : {}) },
    series: chart.series.map((series) => ({
      name: [words(series.name), series.device, series.node].filter(Boolean).join(" · "),
      x: series.after_ns,
      y: series.value,
    })),
    note: chart.left_out_count === 0 ? null : `${chart.left_out_count} more series are not shown.`,
  };
}

function Parameters({ rows }: { rows: RuleParameter[] }) {
  if (rows.length === 0) return null;
  return (
    <LinkedTable
      id="parameters"
      title="Parameters"
      rows={rows}
      fields={columns("RuleParameter", "name", "value", "default", "takes", "doc")}
    />
  );
}
