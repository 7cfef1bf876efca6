// One rule that found an issue: what, when, the measurements of that time, and what to do.
import type { EvidenceChart, RuleInsight } from "../../api/views";
import { count, countOf } from "../../base/quantities";
import { capitalize, sentence, words } from "../../base/text";
import type { Plot } from "../../charts/plot";
import { rangeOf } from "../../parts/job_pieces";
import { TimePanel } from "../../parts/time_panel";
import { timelineAt } from "../../parts/timeline_link";
import { screenTitle } from "../../state/screen_titles";
import { link } from "../../state/url";
import { Prose } from "../../widgets/prose";
import { ErrorNotice } from "../../widgets/resource_view";
import { RuleStatusBadge } from "../../widgets/rule_status";
import { About, useRevealed } from "./quiet";
import { ruleTitle, triggerTimes } from "./text";

/** Height of the measurements of a card. */
const PLOT_HEIGHT_PX = 220;

export function RuleCard({ rule }: { rule: RuleInsight }) {
  const [element, isRevealed] = useRevealed<HTMLElement>([rule.rule]);
  const [headline = rule.summary, ...more] = rule.sentences;
  const { first_after_ns: first, last_after_ns: last } = rule;
  const id = `rule-${rule.rule}`;
  return (
    <section ref={element} class={`panel rule ${rule.status}`} data-testid="rule" aria-labelledby={id}>
      <header>
        <p class="eyebrow">{ruleTitle(rule.rule)}</p>
        <div class="panel-tools">
          {rule.status === "IssuesFound" ? null : <RuleStatusBadge status={rule.status} />}
          {first === null || last === null ? null : (
            <a class="action" href={timelineAt(first, last, rangeOf(first, last))} title="Selects this range for all screens">Show on timeline</a>
          )}
        </div>
      </header>
      <h2 id={id}><Prose text={sentence(headline)} /></h2>
      {rule.error === null ? <p class="muted" data-testid="violation">{violationText(rule)}</p> : <ErrorNotice text={rule.error} />}
      {rule.missing === null ? null : <p class="muted"><Prose text={sentence(rule.missing)} /></p>}
      <SentenceList sentences={more} />
      <div class="panels">
        {rule.charts.map((chart) => (
          <TimePanel key={chart.title} wide={rule.charts.length === 1} block={plotOf(chart, rule)} />
        ))}
      </div>
      {rule.recommendation === "" ? null : <p class="advice"><b>What to do:</b> <Prose text={rule.recommendation} /></p>}
      <details open={isRevealed}>
        <summary>About this rule</summary>
        <About rule={rule}>
          {rule.evidence.length === 0 ? null : (
            <p>
              See also{" "}
              {screensOf(rule.evidence).map(([title, view], index) => (
                <>{index === 0 ? "" : ", "}<a href={link(view)}>{title}</a></>
              ))}.
            </p>
          )}
        </About>
      </details>
    </section>
  );
}

/** Screens that draw some views, each once, with the first of its views. */
function screensOf(views: readonly string[]): [string, string][] {
  return [...new Map([...views].reverse().map((view) => [screenTitle(view), view] as const))].reverse();
}

/** More sentences are folded: a rule may have one for each of hundreds of ranks, which are alike. */
const MAX_SENTENCES = 5;

function SentenceList({ sentences }: { sentences: string[] }) {
  if (sentences.length === 0) return null;
  const list = (texts: string[]) => <ul class="plain">{texts.map((text) => <li key={text}><Prose text={text} /></li>)}</ul>;
  if (sentences.length <= MAX_SENTENCES) return list(sentences);
  return (
    <details>
      <summary>{count(sentences.length)} more like this</summary>
      {list(sentences)}
    </details>
  );
}

/** More nodes, ranks or devices are counted. */
const MAX_NAMES = 8;

/** When, where and in how much of the data the condition was violated; without what the headline names. */
function violationText(rule: RuleInsight): string {
  const headline = rule.sentences[0]?.toLowerCase() ?? "";
  const devices = rule.devices.map((device) => `GPU ${device}`);
  const listed = ([[rule.ranks, "rank"], [rule.nodes, "node"], [devices, "GPU"]] as const).flatMap(([names, noun]) =>
    names.length > MAX_NAMES ? [countOf(names.length, noun)] : names.filter((name) => !headline.includes(name.toLowerCase())));
  return [
    triggerTimes(rule),
    ...(rule.datapoint_count === 0 ? [] : [`${count(rule.violation_count)} of ${countOf(rule.datapoint_count, "data point")} of the run`]),
    ...(listed.length === 0 ? [] : [listed.join(", ")]),
  ].join(" · ");
}

export function plotOf(chart: EvidenceChart, { first_after_ns: first, last_after_ns: last }: Pick<RuleInsight, "first_after_ns" | "last_after_ns">): Plot {
  const { unit, from_after_ns: min, to_after_ns: max } = chart;
  // What all series share, the headline names.
  const varying = (["device", "node"] as const).filter((key) => new Set(chart.series.map((series) => series[key])).size > 1);
  return {
    kind: "plot",
    title: capitalize(words(chart.title)),
    height: PLOT_HEIGHT_PX,
    x: { name: "after the start of the run", unit: "ns", min, max },
    y: { name: unit === "ns" ? "duration" : "value", unit, ...(unit === "ratio" ? { max: 1 } : {}) },
    series: chart.series.map((series) => ({
      name: [words(series.name), ...varying.map((key) => series[key])].filter(Boolean).join(" · "),
      x: series.after_ns,
      y: series.value,
    })),
    ...(first === null || last === null ? {} : { spans: [{ name: "violated", from: Math.max(first, min), to: Math.min(last, max) }] }),
    note: chart.left_out_count === 0 ? null : `${chart.left_out_count} more series are not shown.`,
  };
}
