// Time of the steps along the critical path, by kind, by rank and by what runs.
import type { ComponentChildren } from "preact";

import type { CriticalPathOf, PathShare } from "../../api/views";
import { countOf, duration, percent } from "../../base/quantities";
import { sentence } from "../../base/text";
import { pathColour } from "../../base/path_kinds";
import { LinkedTable } from "../../parts/linked_table";
import { useTraces } from "../../parts/trace_screen";
import { useRowLimit } from "../../parts/url_controls";
import { useView } from "../../state/fetch";
import { link } from "../../state/url";
import { columns } from "../../widgets/fields";
import { PageHeader } from "../../widgets/page_header";
import { Panel } from "../../widgets/panel";
import { EmptyState, QualityNotes, ResourceView } from "../../widgets/resource_view";
import { ShareBar } from "../../widgets/share_bar";
import { replayTiles, tracesOf } from "./replay";

export function Path({ tabs }: { tabs: ComponentChildren }) {
  const [top, rowLimitSelect] = useRowLimit();
  const resource = useView("critical-path", { top, from_ns: null, to_ns: null });
  const traces = useTraces(); // the timeline has no path of spans
  return (
    <>
      <PageHeader title="Critical path">
        {traces.data === null || traces.data.recordings.length === 0 ? null : <a class="action" href={link("timeline", { pin: "critical-path" })}>Show in timeline</a>}
        {rowLimitSelect}
      </PageHeader>
      {tabs}
      <ResourceView resource={resource}>
        {(payload) => (
          <>
            {payload.missing === null ? null : <EmptyState text={payload.missing} />}
            {payload.paths.map((path, index) => (
              <Steps key={path.traces.join()} path={path} shareOf={payload.share_of} id={index === 0 ? undefined : `path-${index}`} />
            ))}
            <QualityNotes quality={payload.quality} notes={payload.paths.flatMap((path) => path.notes)} />
          </>
        )}
      </ResourceView>
    </>
  );
}

function Steps({ path, shareOf, id }: { path: CriticalPathOf; shareOf: string; id: string | undefined }) {
  const isJoint = path.ranks.length > 0;
  const [largest] = [...path.shares].sort((a, b) => b.step_ns - a.step_ns);
  return (
    <section aria-label={tracesOf(path)}>
      {largest === undefined ? null : (
        <h2 class="answer" data-testid="path-answer">
          {sentence(`${largest.category} is ${percent(largest.share_ratio)} of the critical path: ${duration(largest.step_ns)} of each step of ${duration(path.step_ns)}`)}
        </h2>
      )}
      {replayTiles(path, isJoint ? { label: "Ranks tied by", value: countOf(path.tied_count, "collective") } : null)}
      <Panel title="Step by kind of time" definition={`Shares are of the ${shareOf}. Steps of ${tracesOf(path)}.`} wide testid="path-shares">
        <ShareBar label="Kinds of time on the critical path" segments={kindSegments(path.shares)} />
      </Panel>
      {isJoint ? (
        <Panel title="Step by rank" description="The rank that the critical path is on." wide testid="path-ranks">
          <ShareBar
            label="Ranks on the critical path"
            segments={path.ranks.map(({ rank, share_ratio }) => ({ name: `rank ${rank ?? "unknown"}`, ratio: share_ratio ?? 0, amount: duration(share_ratio === null ? null : share_ratio * path.step_ns) }))}
          />
        </Panel>
      ) : null}
      <LinkedTable
        {...(id === undefined ? {} : { id })}
        title="Work on the critical path"
        definition={`Shares are of the ${shareOf}.`}
        testid="table-path"
        rows={path.activities}
        fields={columns(
          "PathActivity", ["name", { isLongName: true }], ["share_ratio", { display: "bar" }], "step_ns", "count_per_step", ["category", { title: "kind of time" }], "kind", isJoint && "rank",
        )}
      />
    </section>
  );
}

/** Segments of the step, in the colours of the timeline. */
export function kindSegments(shares: readonly PathShare[]) {
  return shares.map(({ category, share_ratio, step_ns }) => ({
    name: category, ratio: share_ratio ?? 0, amount: duration(step_ns), colour: pathColour(category),
  }));
}
