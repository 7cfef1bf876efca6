import type { Verdict } from "../api/report";
import { duration, percent } from "../base/format";
import { Prose } from "../widgets/prose";

export function VerdictView({ verdict }: { verdict: Verdict }) {
  const known = verdict.suspect !== "insufficient_evidence";
  return (
    <section id="verdict" class={`verdict ${verdict.suspect}`} aria-labelledby="verdict-title">
      <p class="eyebrow">Verdict</p>
      <h2 id="verdict-title">{verdict.headline}</h2>
      {known ? <Measured verdict={verdict} /> : null}
      {known ? <Phases verdict={verdict} /> : null}
      <div class="pair">
        <Stages verdict={verdict} />
        <Points title="Evidence" lines={verdict.evidence.slice(1).map((each) => each.text)} />
      </div>
      <Fixes verdict={verdict} />
      <div class="pair">
        <Points
          title={verdict.suspect === "healthy" ? "Checked" : "Not the cause"}
          lines={verdict.ruled_out.map((each) => `${words(each.suspect)}: ${each.why}`)}
        />
        <Points title="Notes" lines={verdict.notes} />
      </div>
    </section>
  );
}

function words(name: string): string {
  return name.replaceAll("_", " ");
}

function Measured({ verdict }: { verdict: Verdict }) {
  return (
    <p class="muted">
      {verdict.step_count.toLocaleString("en-US")} steps measured, {duration(verdict.mean_step_ns)}
      {" "}each on average; confidence {percent(verdict.confidence_ratio)}; shares are of the{" "}
      {verdict.share_of}.
    </p>
  );
}

function Phases({ verdict }: { verdict: Verdict }) {
  const phases = Object.entries(verdict.phases).filter(([, share]) => share >= 0.005);
  return (
    <ul class="phases" aria-label="A step by phase">
      {phases.map(([name, share]) => (
        <li key={name}>
          <span>{words(name)}</span>
          <span class="bar" aria-hidden="true"><i style={{ width: `${100 * share}%` }} /></span>
          <b>{percent(share)}</b>
        </li>
      ))}
    </ul>
  );
}

function Stages({ verdict }: { verdict: Verdict }) {
  if (verdict.stages.length === 0) return null;
  return (
    <div>
      <h3>What it consists of</h3>
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

function Fixes({ verdict }: { verdict: Verdict }) {
  if (verdict.fixes.length === 0) return null;
  return (
    <div>
      <h3>What to do</h3>
      <ol>
        {verdict.fixes.map((fix) => (
          <li key={fix.title}>
            <b>{fix.title}</b>: <Prose text={fix.how} /> <span class="muted">because {fix.why}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}

function Points({ title, lines }: { title: string; lines: string[] }) {
  if (lines.length === 0) return null;
  return (
    <div>
      <h3>{title}</h3>
      <ul>{lines.map((line) => <li key={line}><Prose text={line} /></li>)}</ul>
    </div>
  );
}
