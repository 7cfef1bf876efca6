// Findings about tensors and losses, with links to the tensors that they name and to the timeline.
import type { RecordedTensor, TensorFinding, TensorOfFinding, TensorsView } from "../../api/views";
import { count, countOf } from "../../base/quantities";
import { StepLink } from "../../parts/timeline_link";
import { link } from "../../state/url";
import { Panel } from "../../widgets/panel";
import { Prose } from "../../widgets/prose";
import { tensorKey } from "./keys";

/** Tensors that are listed for each finding. */
const MAX_TENSORS = 6;
/** Sentences of a finding that are shown at once. */
const MAX_SENTENCES = 3;

export function Findings({ payload }: { payload: TensorsView }) {
  const { findings, nan_origin, nan_origin_step } = payload;
  if (findings.length === 0 && nan_origin === null) return null;
  return (
    <Panel title="Findings" wide testid="tensor-findings" tools={<a class="quiet" href={link("insights")}>All rules</a>}>
      <ul class="findings">
        {nan_origin === null ? null : (
          <li data-testid="nan-origin">
            <a href={link("insights", { rule: "NanOrigin" })}>Origin of NaN</a>
            {nan_origin_step === null ? null : <span class="muted">step <StepLink step={nan_origin_step} rank="" /></span>}
            <p><Prose text={nan_origin} /></p>
          </li>
        )}
        {findings.filter(({ rule }) => nan_origin === null || rule !== "NanOrigin").map((finding) => (
          <Finding key={finding.rule} finding={finding} recorded={payload.tensors} />
        ))}
      </ul>
    </Panel>
  );
}

function Finding({ finding, recorded }: { finding: TensorFinding; recorded: readonly RecordedTensor[] }) {
  const restCount = finding.tensors.length - MAX_TENSORS;
  return (
    <li>
      <a href={link("insights", { rule: finding.rule })}>{finding.rule}</a>
      <Sentences texts={finding.sentences.slice(0, MAX_SENTENCES)} />
      {finding.sentences.length <= MAX_SENTENCES ? null : (
        <details>
          <summary>{`${count(finding.sentences.length - MAX_SENTENCES)} more`}</summary>
          <Sentences texts={finding.sentences.slice(MAX_SENTENCES)} />
        </details>
      )}
      {finding.tensors.length === 0 ? null : (
        <p class="muted steps-inline" aria-label={`Tensors of ${finding.rule}`}>
          {finding.tensors.slice(0, MAX_TENSORS).map((tensor, index) => (
            <span key={`${tensor.name} ${tensor.mode} ${String(tensor.rank)}`}>
              {index === 0 ? "" : " · "}
              <TensorLink tensor={tensor} recorded={recorded} />
              <FirstStep tensor={tensor} />
            </span>
          ))}
          {restCount > 0 ? ` · ${countOf(restCount, "more tensor")}` : ""}
        </p>
      )}
      {finding.recommendation === "" ? null : <p><b>What to do:</b> <Prose text={finding.recommendation} /></p>}
    </li>
  );
}

function Sentences({ texts }: { texts: readonly string[] }) {
  return <>{texts.map((text) => <p key={text}><Prose text={text} /></p>)}</>;
}

/** Name of a tensor that selects its row; only the name of one that was not recorded. */
function TensorLink({ tensor, recorded }: { tensor: TensorOfFinding; recorded: readonly RecordedTensor[] }) {
  const row = recorded.find((candidate) => isNamed(tensor, candidate));
  if (row === undefined) return <bdi>{tensor.name}</bdi>;
  return <a href={link("tensors", { "tensor-row": tensorKey(row) })}><bdi>{tensor.name}</bdi></a>;
}

function FirstStep({ tensor }: { tensor: TensorOfFinding }) {
  if (tensor.first_step === null) return null;
  return <> at step <StepLink step={tensor.first_step} rank={tensor.rank === null ? "" : `rank ${tensor.rank}`} /></>;
}

/** True if a finding names a recorded tensor. */
export function isNamed({ name, mode, rank }: TensorOfFinding, tensor: RecordedTensor): boolean {
  return name === tensor.name && mode === tensor.mode && (rank === null || rank === (tensor.rank ?? 0));
}

/** Findings that name one tensor, beside its statistics. */
export function FindingsOfTensor({ tensor, findings }: { tensor: RecordedTensor; findings: readonly TensorFinding[] }) {
  const entries = findings.flatMap(({ rule, tensors }) =>
    tensors.filter((candidate) => isNamed(candidate, tensor)).map((ofFinding) => ({ rule, ofFinding })),
  );
  if (entries.length === 0) return null;
  return (
    <ul class="findings" aria-label={`Findings about ${tensor.name}`}>
      {entries.map(({ rule, ofFinding }) => (
        <li key={rule}>
          <a href={link("insights", { rule })}>{rule}</a>
          <span class="muted"><FirstStep tensor={ofFinding} />{recordsText(ofFinding)}</span>
        </li>
      ))}
    </ul>
  );
}

/** Count of the records in which the condition of a rule held; empty for a rule without one. */
export function recordsText({ violation_count, record_count }: Pick<TensorOfFinding, "violation_count" | "record_count">): string {
  if (violation_count === null || record_count === null) return "";
  return `, in ${count(violation_count)} of ${countOf(record_count, "record")}`;
}
