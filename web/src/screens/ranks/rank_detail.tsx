// One rank: what it does while the others wait, or waits for, by activity and line of the script.
import type { RankLateness } from "../../api/views";
import { duration, percent } from "../../base/quantities";
import { capitalize, sentence } from "../../base/text";
import { StepLink } from "../../parts/timeline_link";
import { openSource, parseFrame } from "../../state/source_location";
import { Panel } from "../../widgets/panel";

interface Props {
  rank: RankLateness;
  /** Step in which it is latest; null where columns of the map are several steps. */
  latestStep: number | null;
  /** True for the rank of the sentence of the screen, which is not repeated. */
  isOfSentence: boolean;
}

export function RankDetail({ rank, latestStep, isOfSentence }: Props) {
  const { activities, lines } = rank;
  const episodes = rank.persistence === "persistent" ? [] : rank.episodes;
  const longest_ns = Math.max(1, ...activities.flatMap(({ mean_ns, others_ns }) => [mean_ns, others_ns]));
  return (
    <Panel title={capitalize(rank.rank)} testid="rank-detail">
      {isOfSentence ? null : <p class="rank-sentence">{summary(rank)}</p>}
      <h3>{rank.persistence === null ? "Its step" : "While the others wait, it runs"}</h3>
      {lines === null ? <p class="muted">Lines of the script are read for the latest ranks only.</p>
        : lines.length === 0 ? <p class="muted">No function or line: neither stack samples nor Python stacks in the traces of this rank.</p>
        : (
          <ul class="rank-lines">
            {lines.map((line) => (
              <li key={`${line.activity ?? ""} ${line.frame}`}>
                <b>{duration(line.mean_ns)}</b>
                <LineName frame={line.frame} />
                <span class="muted">{line.activity === null ? "" : `in ${line.activity}`}</span>
              </li>
            ))}
          </ul>
        )}
      <table class="rank-activities">
        <caption class="hidden">Activities of {rank.rank} in the mean step</caption>
        <thead><tr><th scope="col">Activity per step</th><th scope="col">This rank</th><th scope="col">Others</th><th aria-hidden="true" /></tr></thead>
        <tbody>
          {activities.map(({ activity, mean_ns, others_ns }) => (
            <tr key={activity}>
              <th scope="row">{activity}</th>
              <td>{duration(mean_ns)}</td>
              <td>{duration(others_ns)}</td>
              <td class="pair" aria-hidden="true">
                <i style={{ width: `${(100 * mean_ns) / longest_ns}%` }} />
                <i class="others" style={{ width: `${(100 * others_ns) / longest_ns}%` }} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {episodes.map(({ first_step, last_step, late_ratio, lateness_ns }) => (
        <p key={first_step} class="muted">
          Late in {percent(late_ratio)} of steps {first_step} to {last_step}, by {duration(lateness_ns)}.
        </p>
      ))}
      {latestStep === null ? null : <p class="muted">Latest in step <StepLink step={latestStep} rank={rank.rank} /></p>}
    </Panel>
  );
}

function summary(rank: RankLateness): string {
  if (rank.made_late_by !== null) return `Late by ${duration(rank.lateness_ns)}: ${rank.made_late_by} makes it late in an earlier collective.`;
  if (rank.persistence === null) return `Not late. It waits ${duration(rank.mean_waiting_ns)} per step for the last rank.`;
  const late = `Late by ${duration(rank.lateness_ns)} in ${percent(rank.late_ratio)} of steps`;
  return sentence(rank.cause === null ? `${late}; no cause was found` : `${late}: ${rank.cause}`);
}

/** Function and line, which open the source; a name without a line as it is. */
function LineName({ frame }: { frame: string }) {
  const location = parseFrame(frame);
  if (location === null) return <bdi title={frame}>{frame}</bdi>;
  const file = location.file.split("/").pop() ?? "";
  const name = frame.slice(frame.indexOf("): ") + 3);
  return (
    <button type="button" class="line-link" title={`${frame}: show source`} onClick={() => { openSource(location.file, location.line); }}>
      <bdi>{name}</bdi> <span>{file}:{location.line}</span>
    </button>
  );
}
