// Account of a whole job: one bar of its time by class, with a legend.
import type { ComponentChildren } from "preact";

import type { JobAccount, JobPart } from "../api/report";
import { countOf, duration, percent } from "../base/quantities";
import { ClassBar, ClassLegend } from "./class_bar";
import { Prose } from "./prose";

/** Functions with a smaller share of their class are not named in the legend. */
const MIN_FUNCTION_RATIO = 0.25;
/** Classes with a smaller share of the job are not drawn. */
const MIN_RATIO = 0.005;
/** Notes name a rank each. */
const MAX_NOTES = 3;

interface Props {
  account: JobAccount;
  /** True where its headline is shown already. */
  isStated: boolean;
  /** Time of the ranks in its order: in place of the bar, but for a planned job, whose shares the bar has. */
  strip?: ((bar: ComponentChildren) => ComponentChildren) | undefined;
}

export function JobAccountView({ account, isStated, strip }: Props) {
  const { duration_ns, planned_ns, planned_step_count } = account;
  const parts = account.parts.filter((part) => shareOf(account, part) >= MIN_RATIO).map((part) => ({
    key: part.key, title: part.title, ratio: shareOf(account, part),
    amount: `${duration(part.time_ns)} ${functionOf(part)}`, description: describePart(account, part),
  }));
  const soFar = account.is_final ? "" : " so far";
  const bar = <ClassBar parts={parts} />;
  return (
    <div class="job" data-testid="job">
      <h3>Whole job: {duration(duration_ns)}{soFar}</h3>
      {isStated ? null : <p>{account.headline}</p>}
      {planned_ns === null ? strip?.(bar) ?? bar : <>{bar}{strip?.(null)}</>}
      <ClassLegend label="Time of the job by class" parts={parts} />
      {planned_ns === null || planned_step_count === null ? null : (
        <p class="muted" data-testid="job-planned">
          Shares are of the job as planned: {countOf(planned_step_count, "step")}, about {duration(planned_ns)}. Times are those of this run.
        </p>
      )}
      {account.notes.slice(0, MAX_NOTES).map((note) => <p class="muted" key={note}><Prose text={note} /></p>)}
      {account.notes.length <= MAX_NOTES ? null : <p class="muted">{countOf(account.notes.length - MAX_NOTES, "more rank")} with time that was not seen.</p>}
    </div>
  );
}

/** Share of a class, of the planned job where there is one. */
function shareOf(account: JobAccount, part: JobPart): number {
  return part.planned_ns === null || account.planned_ns === null ? part.share_ratio : part.planned_ns / account.planned_ns;
}

function functionOf({ key, functions, time_ns }: JobPart): string {
  const [first] = functions;
  if (first === undefined || key === "steps" || first.time_ns < MIN_FUNCTION_RATIO * time_ns) return "";
  return `${first.name} ${first.location}`.trim();
}

function describePart(account: JobAccount, part: JobPart): string {
  const functions = part.functions.map(({ name, location, time_ns }) => `\n${`${name} ${location}`.trim()}: ${duration(time_ns)}`);
  return `${part.title}: ${duration(part.time_ns)}, ${percent(shareOf(account, part), 1)} of the job${functions.join("")}`;
}
