import { Check, Copy, X } from "lucide";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

import type { Death, Evidence, Fix, Learning, MemoryAccount, Verdict } from "../api/report";
import { copyText } from "../base/copy";
import { countOf, dollars, duration, percent } from "../base/quantities";
import { phaseName } from "../base/phase_names";
import { sentence, words } from "../base/text";
import { IconButton } from "./icon_button";
import { JobAccountView } from "./job_account";
import { Prose } from "./prose";

const MAX_LISTED_STAGES = 8;

interface Props {
  verdict: Verdict;
  /** Dollars per step that each fix would save; null if unknown. */
  savings?: (number | null)[];
  /** URL and title of the screen of a view, where there are screens. */
  linkOf?: (view: string) => readonly [url: string, title: string];
  /** Time of the ranks, in place of the bar of the whole job. */
  strip?: ((bar: ComponentChildren) => ComponentChildren) | undefined;
  /** Steps over time, beside the fixes. */
  steps?: ComponentChildren;
  /** Content between the headline and its evidence; of the short form, before the rest of it. */
  children?: ComponentChildren;
  /** Show three pieces of evidence and three fixes, the rest on demand. */
  isShort?: boolean;
}

const MAX_SHORT_ITEMS = 3;

export function VerdictView(props: Props) {
  return props.isShort === true ? <ShortVerdict {...props} /> : <FullVerdict {...props} />;
}

function ShortVerdict({ verdict, savings, linkOf, strip, steps, children }: Props) {
  const hasEvidence = verdict.suspect !== "insufficient_evidence";
  // Where a job is stuck, its few steps are not the answer.
  const isStuck = verdict.stuck !== null;
  const rows = fixRows(verdict, savings ?? []);
  const answer = (
    <div class="two-columns">
      <div>
        {hasEvidence ? <Phases verdict={verdict} isShort /> : null}
        {hasEvidence ? <EvidenceList evidence={verdict.evidence.slice(1, 1 + MAX_SHORT_ITEMS)} linkOf={linkOf} /> : null}
      </div>
      <div>
        {steps}
        <FixRows rows={rows.slice(0, MAX_SHORT_ITEMS)} shareOf={savingsOf(verdict)} />
      </div>
    </div>
  );
  return (
    <section id="verdict" class={`verdict ${isStuck ? "insufficient_evidence" : verdict.suspect}`} aria-labelledby="verdict-title">
      <Top verdict={verdict} strip={strip} isShort isJobOnly={isStuck} />
      {isStuck ? null : answer}
      <LearningView learning={verdict.learning} />
      <details class="rest" data-testid="verdict-rest">
        <summary>{isStuck ? "Verdict on the steps before" : "All of the verdict"}</summary>
        {isStuck ? <><p><Prose text={stepHeadline(verdict)} /></p>{answer}</> : null}
        {children}
        {rows.length > MAX_SHORT_ITEMS ? <FixRows rows={rows.slice(MAX_SHORT_ITEMS)} shareOf={savingsOf(verdict)} title="More fixes" /> : null}
        <Stages verdict={verdict} />
        <EvidenceList evidence={verdict.evidence.slice(1 + MAX_SHORT_ITEMS)} linkOf={linkOf} title="More evidence" />
        <OtherSuspects verdict={verdict} />
        <ContributingCauses verdict={verdict} />
        <Lists verdict={verdict} />
      </details>
    </section>
  );
}

function FullVerdict({ verdict, savings, linkOf, strip, children }: Props) {
  const hasEvidence = verdict.suspect !== "insufficient_evidence";
  return (
    <section id="verdict" class={`verdict ${verdict.suspect}`} aria-labelledby="verdict-title">
      <Top verdict={verdict} strip={strip} />
      {children}
      <div class="two-columns">
        {hasEvidence ? <Phases verdict={verdict} /> : null}
        <Stages verdict={verdict} />
      </div>
      <div class="two-columns">
        <EvidenceList evidence={verdict.evidence.slice(1)} linkOf={linkOf} />
        <OtherSuspects verdict={verdict} />
      </div>
      <ContributingCauses verdict={verdict} />
      <FixRows rows={fixRows(verdict, savings ?? [])} shareOf={savingsOf(verdict)} isOpen />
      <LearningView learning={verdict.learning} />
      <Lists verdict={verdict} />
    </section>
  );
}

/** What comes first: memory that grows, the headline, the whole job, what shares are of. */
function Top({ verdict, strip, isShort = false, isJobOnly = false }: Pick<Props, "verdict" | "strip" | "isShort"> & { isJobOnly?: boolean }) {
  const hasBasis = verdict.suspect !== "insufficient_evidence" && !isJobOnly;
  return (
    <>
      <MemoryGrowth memory={verdict.memory} />
      <p class="eyebrow">Verdict{isShort && hasBasis ? ` · confidence ${percent(verdict.confidence_ratio)}` : ""}</p>
      <Headline verdict={verdict} isJobOnly={isJobOnly} />
      {verdict.job === null ? null : (
        <JobAccountView account={verdict.job} isStated={isJobStated(verdict)} strip={strip} />
      )}
      <BulletList title="Stages" lines={stageLines(verdict, isShort ? MAX_SHORT_ITEMS : MAX_LISTED_STAGES)} />
      {hasBasis && !isShort ? <Basis verdict={verdict} /> : null}
    </>
  );
}

/** The job's sentences, then those of its step. */
function Headline({ verdict, isJobOnly }: { verdict: Verdict; isJobOnly: boolean }) {
  const rest = stepHeadline(verdict);
  return (
    <h2 id="verdict-title" data-testid="verdict-headline">
      <Prose text={verdict.headline.slice(0, verdict.headline.length - rest.length)} />
      {rest === "" || isJobOnly ? null : <span class="step-headline"><Prose text={rest} /></span>}
    </h2>
  );
}

/** The headline without the sentences of the job; empty where it has none of them. */
function stepHeadline({ headline, job }: Verdict): string {
  return job !== null && headline.startsWith(job.headline) ? headline.slice(job.headline.length) : "";
}

function isJobStated({ headline, job }: Verdict): boolean {
  return job !== null && headline.startsWith(job.headline);
}

/** What comes last. */
function Lists({ verdict }: { verdict: Verdict }) {
  return (
    <>
      <BulletList title="Expected after the fix" lines={verdict.targets.map((target) => target.text)} />
      {verdict.memory === null || verdict.memory.is_growing ? null : (
        <BulletList title="Memory" lines={[verdict.memory.headline, ...verdict.memory.lines]} />
      )}
      <BulletList title="Notes" lines={verdict.notes} />
    </>
  );
}

function OtherSuspects({ verdict }: { verdict: Verdict }) {
  return (
    <BulletList
      title={verdict.suspect === "healthy" ? "Checked" : "Other suspects"}
      lines={verdict.ruled_out.map((item) => `${words(item.suspect)}: ${item.why}`)}
    />
  );
}

interface FixRow {
  title: string;
  instructions: string;
  why: string;
  /** Share of the job where there is one, else of the step; null if unknown. */
  ratio: number | null;
  /** True where it saves at most that. */
  isBound: boolean;
  saving: string;
  details: ComponentChildren;
}

/** Fixes of the step and of the job around it: where the job comes first, by what they save of it. */
function fixRows({ fixes, job }: Verdict, savings: (number | null)[]): FixRow[] {
  const stepRows = fixes.map((fix, index): FixRow => ({
    title: fix.title,
    instructions: fix.how,
    why: fix.why,
    ratio: job === null ? fix.prediction?.saving_ratio ?? null : fix.job_saving_ratio,
    isBound: fix.prediction?.is_bound ?? false,
    saving: stepSaving(fix),
    details: (
      <>
        <PredictedSaving fix={fix} usd={savings[index] ?? null} />
        {fix.tried && <p data-testid="tried">Tried: {fix.tried.text}.</p>}
      </>
    ),
  }));
  const jobRows = (job?.fixes ?? []).map((fix): FixRow => ({
    title: fix.title,
    instructions: fix.how,
    why: fix.why,
    ratio: fix.saving_ratio,
    isBound: fix.is_bound,
    saving: `Saves ${bound(fix)}${duration(fix.saving_ns)}, ${percent(fix.saving_ratio)} of the job.`,
    details: null,
  }));
  const rows = [...stepRows, ...jobRows];
  return job?.is_first === true ? rows.sort((a, b) => (b.ratio ?? 0) - (a.ratio ?? 0)) : rows;
}

/** What the savings of the rows are shares of. */
function savingsOf({ fixes, job }: Verdict): string {
  if (job !== null) return "of the job";
  return fixes.some(includesEvaluation) ? "of step and evaluation time" : "of the step";
}

/** Fixes as rows: the saving as a bar and a number, the change and its reason on demand. */
function FixRows({ rows, shareOf, title = "What to do", isOpen = false }: { rows: FixRow[]; shareOf: string; title?: string; isOpen?: boolean }) {
  if (rows.length === 0) return null;
  return (
    <div>
      <h3>{title} <span class="muted">saving, share {shareOf}</span></h3>
      <ol class="fix-rows" data-testid="fix-rows">
        {rows.map((row) => (
          <li key={row.title}>
            <span class="bar" aria-hidden="true"><i style={{ width: `${100 * Math.min(1, row.ratio ?? 0)}%` }} /></span>
            <details open={isOpen}>
              <summary>{row.title}</summary>
              <p><Prose text={sentence(row.instructions)} /></p>
              <p>{row.saving}</p>
              <p class="muted">Reason: <Prose text={row.why} /></p>
              {row.details}
            </details>
            <b class="saving" title={row.saving}>{row.isBound && row.ratio !== null ? "≤ " : ""}{percent(row.ratio)}</b>
            {isOpen ? null : <CopyButton title={row.title} text={row.instructions.replaceAll("`", "")} />}
          </li>
        ))}
      </ol>
    </div>
  );
}

/** Button that copies the change of a fix, and says if it did. */
function CopyButton({ title, text }: { title: string; text: string }) {
  const [isCopied, setIsCopied] = useState<boolean | null>(null);
  const [icon, label] = isCopied === null ? [Copy, "Copy the change"] as const : isCopied ? [Check, "Copied"] as const : [X, "The browser does not allow to copy"] as const;
  return <IconButton icon={icon} label={`${label}: ${title}`} onClick={() => { void copyText(text).then(setIsCopied); }} />;
}

function bound({ is_bound }: { is_bound: boolean }): string {
  return is_bound ? "at most " : "";
}

function stepSaving(fix: Fix): string {
  const { prediction, job_saving_ratio } = fix;
  if (prediction === null) return "The saving is not known.";
  const job = job_saving_ratio === null ? "" : `, ${percent(job_saving_ratio)} of the job`;
  const base = includesEvaluation(fix) ? "step and evaluation time" : "the step";
  return `Saves ${bound(prediction)}${percent(prediction.saving_ratio)} of ${base}${job}.`;
}

function includesEvaluation({ prediction }: Fix): boolean {
  return prediction?.share_of.includes("evaluation") ?? false;
}

/** What ended a job that did not succeed, with the last lines that it printed. */
export function DeathView({ death }: { death: Death | null }) {
  if (death === null) return null;
  const lines = [...death.evidence, ...death.advice.map((text) => `What to do: ${text}`)];
  return (
    <section class="verdict death" data-testid="death" aria-labelledby="death-title">
      <p class="eyebrow">What ended the job</p>
      <h2 id="death-title"><Prose text={death.headline} /></h2>
      <ul>{lines.map((line) => <li key={line}><Prose text={line} /></li>)}</ul>
      {death.output.length === 0 ? null : (
        <details>
          <summary>Last lines of the error output</summary>
          <pre>{death.output.join("\n")}</pre>
        </details>
      )}
      {death.output_missing === null ? null : <p class="muted">{sentence(death.output_missing)}</p>}
    </section>
  );
}

/** Host memory that grows: said before the speed, as it ends the job. */
function MemoryGrowth({ memory }: { memory: MemoryAccount | null }) {
  if (memory === null || !memory.is_growing) return null;
  return (
    <div data-testid="memory-growth">
      <p class="eyebrow">Memory</p>
      <p><strong>{memory.headline}</strong></p>
      {memory.lines.map((line) => <p key={line}>{line}</p>)}
    </div>
  );
}

/** The stages of a job that trains several times; of many only the largest. */
function stageLines(verdict: Verdict, limit: number): string[] {
  const lines = verdict.job_stages.slice(0, limit).map((stage) => stage.text);
  const rest = verdict.job_stages.length - lines.length;
  return rest > 0 ? [...lines, `${countOf(rest, "shorter stage")}.`] : lines;
}

function Basis({ verdict }: { verdict: Verdict }) {
  return <p class="muted">{stepsText(verdict)}Confidence {percent(verdict.confidence_ratio)}. {sharesText(verdict)}</p>;
}

function stepsText({ mean_step_ns, step_count }: Verdict): string {
  return mean_step_ns === null ? "" : `${countOf(step_count, "step")} measured, mean ${duration(mean_step_ns)}. `;
}

function sharesText({ bases_ns, share_of }: Verdict): string {
  const base = bases_ns[share_of];
  return `Shares are of ${share_of}${base === undefined ? "" : ` (${duration(base)} per step)`}.`;
}

/** What the share of the headline consists of, where no sentence of the verdict states it. */
function stagesText({ share_basis, share_ratio, stages }: Verdict): string {
  if (share_basis !== "" || stages.length < 2) return share_basis;
  return `The ${percent(share_ratio)} are ${stages.map(({ name, share_ratio: ratio }) => `${name} ${percent(ratio)}`).join(", ")}.`;
}

function Phases({ verdict, isShort = false }: { verdict: Verdict; isShort?: boolean }) {
  const bars = verdict.bars.filter((bar) => bar.with_core_ratio + bar.without_core_ratio >= 0.005);
  if (bars.length === 0) return null;
  return (
    <div>
      <h3>{verdict.mean_step_ns === null ? "Time by phase" : "Step by phase"}</h3>
      <ul class="phases">
        {bars.map((bar) => (
          <li key={bar.phase}>
            <span>{phaseName(bar.phase)}</span>
            <span class="bar" aria-hidden="true">
              <i style={{ width: `${100 * bar.with_core_ratio}%` }} />
              <i class="hatched" style={{ width: `${100 * bar.without_core_ratio}%` }} />
            </span>
            <b>{percent(bar.share_ratio)}</b>
          </li>
        ))}
      </ul>
      {verdict.bars_basis === "" ? null : <p class="muted" data-testid="bars-basis">{verdict.bars_basis}</p>}
      {stagesText(verdict) === "" ? null : <p class="muted" data-testid="share-basis">{stagesText(verdict)}</p>}
      {isShort ? <p class="muted">{stepsText(verdict)}{sharesText(verdict)}</p> : null}
    </div>
  );
}

function Stages({ verdict }: { verdict: Verdict }) {
  if (verdict.stages.length === 0) return null;
  return (
    <div>
      <h3>Breakdown</h3>
      <ul class="stages">
        {verdict.stages.map((stage) => (
          <li key={stage.name}>
            <b>{percent(stage.share_ratio)}</b> {stage.name}{" "}
            <span class="muted">{stage.detail}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function ContributingCauses({ verdict }: { verdict: Verdict }) {
  if (verdict.also.length === 0) return null;
  return (
    <div>
      <h3>Contributing causes</h3>
      <ul class="stages" data-testid="also">
        {verdict.also.map((cause) => (
          <li key={cause.cause}>
            <b>{words(cause.cause)}</b>: <span class="muted">{cause.text}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function PredictedSaving({ fix: { prediction }, usd }: { fix: Fix; usd: number | null }) {
  if (prediction === null) return null;
  return (
    <p class="predicted" data-testid="prediction">
      <span aria-hidden="true">→ </span>Predicted {prediction.text}.
      {usd !== null && prediction.saving_ratio > 0 ? ` Saves ${dollars(usd)} per step.` : ""}
    </p>
  );
}

function LearningView({ learning }: { learning: Learning | null }) {
  if (learning === null) return null;
  const { headline, evidence, advice, also, not_recorded: missing } = learning;
  return (
    <div data-testid="learning">
      <h3>Is the model learning?</h3>
      <p>{headline}</p>
      <ul>{[...evidence, ...missing].map((line) => <li key={line}><Prose text={line} /></li>)}</ul>
      {advice === "" ? null : <p>What to do: <Prose text={advice} /></p>}
      {also.length === 0 ? null : <p class="muted">Fired later: {also.join(", ")}.</p>}
    </div>
  );
}

function EvidenceList({ evidence, linkOf, title = "Evidence" }: { evidence: Evidence[]; linkOf: Props["linkOf"]; title?: string }) {
  if (evidence.length === 0) return null;
  return (
    <div data-testid={title === "Evidence" ? "evidence" : "more-evidence"}>
      <h3>{title}</h3>
      <ul>
        {evidence.map(({ text, source }) => (
          <li key={text}>
            <Prose text={text} />
            {linkOf === undefined || source === "" ? null : <> <ScreenLink target={linkOf(source)} /></>}
          </li>
        ))}
      </ul>
    </div>
  );
}

function ScreenLink({ target: [url, title] }: { target: readonly [string, string] }) {
  return <a href={url}>{title}</a>;
}

function BulletList({ title, lines }: { title: string; lines: string[] }) {
  if (lines.length === 0) return null;
  return (
    <div>
      <h3>{title}</h3>
      <ul>{lines.map((line) => <li key={line}><Prose text={line} /></li>)}</ul>
    </div>
  );
}
