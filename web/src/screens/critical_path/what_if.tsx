// Fixes simulated on the causal graph: each alone, and those that are selected together.
import type { ComponentChildren } from "preact";

import type { SimulatedFixRow, WhatIfOf } from "../../api/views";
import { duration, percent } from "../../base/quantities";
import { sentence } from "../../base/text";
import { LinkedTable } from "../../parts/linked_table";
import { useText } from "../../parts/url_options";
import { useView } from "../../state/fetch";
import { columns, tile } from "../../widgets/fields";
import { PageHeader } from "../../widgets/page_header";
import { Panel } from "../../widgets/panel";
import { EmptyState, QualityNotes, ResourceView } from "../../widgets/resource_view";
import { Tiles } from "../../widgets/tiles";
import { parseFix, parseFixes, setFactor, toggleFix } from "./fixes";
import { replayTiles, tracesOf } from "./replay";

const WHOLE_RUN = { from_ns: null, to_ns: null };

export function WhatIf({ tabs }: { tabs: ComponentChildren }) {
  const resource = useView("what-if", WHOLE_RUN);
  return (
    <>
      <PageHeader title="Critical path" />
      {tabs}
      <ResourceView resource={resource}>
        {(payload) => (
          <>
            {payload.missing === null ? null : <EmptyState text={payload.missing} />}
            {payload.recordings.map((recording, index) => (
              <Recording key={recording.traces.join()} recording={recording} shareOf={payload.share_of} id={index === 0 ? undefined : `fixes-${index}`} />
            ))}
            {payload.recordings[0] === undefined ? null : <Combination fixes={payload.recordings[0].fixes} />}
            <QualityNotes quality={payload.quality} notes={payload.recordings.flatMap((recording) => recording.notes)} />
          </>
        )}
      </ResourceView>
    </>
  );
}

/** Selection of fixes, and the step with all of them. */
function Combination({ fixes }: { fixes: SimulatedFixRow[] }) {
  const [selected, setSelected] = useText("fixes");
  const factors = parseFixes(selected);
  return (
    <div class="panels spaced"><Panel title="Combine fixes" description="Selected fixes are simulated together." wide testid="combine-fixes">
      <fieldset class="fix-choices">
        <legend class="hidden">Fixes to simulate together</legend>
        {fixes.map(({ fix, title, condition }) => {
          const option = parseFix(fix);
          const isSelected = factors.has(option.name);
          return (
            <div key={option.name} class="choice">
              <label class="choice" title={condition}>
                <input type="checkbox" checked={isSelected} onChange={() => { setSelected(toggleFix(selected, option)); }} />
                <bdi>{title} <span class="muted">{option.name}</span></bdi>
              </label>
              {option.factor === null || !isSelected ? null : (
                <input
                  type="number"
                  class="fix-factor"
                  min="0"
                  step="any"
                  aria-label={`Factor of ${option.name}`}
                  value={factors.get(option.name)}
                  onChange={(event) => { setSelected(setFactor(selected, option.name, event.currentTarget.value || (option.factor ?? ""))); }}
                />
              )}
            </div>
          );
        })}
      </fieldset>
      {selected === "" ? <p class="muted">Select two fixes or more.</p> : <Together name={selected} />}
    </Panel></div>
  );
}

function Together({ name }: { name: string }) {
  const resource = useView("what-if", { ...WHOLE_RUN, name });
  return (
    <ResourceView resource={resource} isSecond>
      {(payload) => (
        <div role="status" data-testid="fixes-together">
          {payload.recordings.map(({ traces, fixes: [row] }) => (row === undefined ? null : (
            <div key={traces.join()}>
              <Tiles
                tiles={[
                  tile("SimulatedFixRow", row, "saving_ratio", { caption: row.error_ratio === null ? null : `± ${percent(row.error_ratio)}`, testid: "together-saving" }),
                  tile("SimulatedFixRow", row, "step_ns", { testid: "together-step" }),
                  tile("SimulatedFixRow", row, "rest_category", { caption: row.rest_ratio === null ? null : `${percent(row.rest_ratio)} of the step that is left` }),
                ]}
              />
              <p class="muted">{sentence(row.reason === null ? row.condition : `no saving: ${row.reason}`)}</p>
            </div>
          )))}
        </div>
      )}
    </ResourceView>
  );
}

function Recording({ recording, shareOf, id }: { recording: WhatIfOf; shareOf: string; id: string | undefined }) {
  const rows = recording.fixes.filter(({ reason }) => reason === null);
  const [best] = rows;
  return (
    <section aria-label={tracesOf(recording)}>
      {best === undefined || best.saving_ratio === null ? null : (
        <h2 class="answer" data-testid="fix-answer">
          {sentence(`${best.title}: a step of ${duration(best.step_ns)} instead of ${duration(recording.step_ns)} (−${percent(best.saving_ratio)}), if ${best.condition}`)}
        </h2>
      )}
      {replayTiles(recording)}
      <LinkedTable
        {...(id === undefined ? {} : { id })}
        title="Fixes by saving"
        testid="table-fixes"
        definition={`Each fix alone. Savings are of the ${shareOf}. Steps of ${tracesOf(recording)}.`}
        rows={rows}
        fields={columns(
          "SimulatedFixRow", ["saving_ratio", { display: "bar" }], "step_ns", ["title", { title: "fix" }], ["condition", { wraps: true }], ["rest_category", { draw: restText }], ["fix", { title: "name" }],
        )}
      />
      <Unhelpful fixes={recording.fixes} />
    </section>
  );
}

function restText({ rest_category, rest_ratio }: SimulatedFixRow): string {
  return rest_category === null ? "" : `${rest_category} ${percent(rest_ratio)}`;
}

/** Fixes without a saving, by the reason. */
export function byReason(fixes: readonly SimulatedFixRow[]): [string, SimulatedFixRow[]][] {
  const rows = new Map<string, SimulatedFixRow[]>();
  for (const fix of fixes) {
    if (fix.reason !== null) rows.set(fix.reason, [...(rows.get(fix.reason) ?? []), fix]);
  }
  return [...rows];
}

function Unhelpful({ fixes }: { fixes: readonly SimulatedFixRow[] }) {
  const reasons = byReason(fixes);
  if (reasons.length === 0) return null;
  return (
    <details class="fixes-folded" data-testid="fixes-without-saving">
      <summary>Fixes without a saving ({reasons.reduce((sum, [, rows]) => sum + rows.length, 0)})</summary>
      <ul>
        {reasons.map(([reason, rows]) => (
          <li key={reason}>
            {rows.map(({ title, fix }) => `${title} (${fix})`).join("; ")}: <span class="muted">{reason}.</span>
          </li>
        ))}
      </ul>
    </details>
  );
}
