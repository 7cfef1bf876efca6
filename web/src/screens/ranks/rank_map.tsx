// Ranks as rows: heat of their steps, parts of their mean step; a click selects one.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { palette } from "../../base/palette";
import { countOf, duration } from "../../base/quantities";
import { csv, save } from "../../base/save";
import { dark } from "../../base/theme";
import { Panel } from "../../widgets/panel";
import "./ranks.css";
import { columnAt, type RankMap as RankMapRows, type RankRow } from "./rows";

/** More ranks have low rows. */
const MAX_HIGH_ROWS = 16;

interface Props {
  map: RankMapRows;
  definition: string;
  selected: string | null;
  /** Without it, rows are not selected. */
  onSelect?: (rank: string) => void;
}

export function RankMap({ map, definition, selected, onSelect }: Props) {
  const [text, setText] = useState<string | null>(null);
  const { rows, steps, heat } = map;
  const longest_ns = Math.max(1, ...rows.map(totalOf));
  const list = useRef<HTMLUListElement>(null);
  useEffect(() => {
    const row = list.current?.querySelector<HTMLElement>("[aria-pressed=true]");
    if (list.current !== null && row != null) list.current.scrollTop = row.offsetTop - list.current.clientHeight / 2;
  }, []);
  const parts = rows.find((row) => row.parts.length > 0)?.parts ?? [];
  const perColumn = map.stepsPerColumn > 1 ? `, ${countOf(map.stepsPerColumn, "step")} per column` : "";
  const [low, high] = map.extent;
  return (
    <Panel title="Ranks by step" definition={definition} testid="lateness-map" onCsv={() => { saveCsv(map); }}>
      <div class={rows.length > MAX_HIGH_ROWS ? "rank-map low" : "rank-map"}>
        <div class="rank-row rank-axis muted" aria-hidden="true">
          <span />
          <span class="ends"><span>step {steps[0]}</span><span>{heat}{perColumn}</span><span>{steps[steps.length - 1]}</span></span>
          <span class="ends">{parts.length === 0 ? null : <><span>0</span><span>{map.barsOf}</span><span>{duration(longest_ns)}</span></>}</span>
          <span />
        </div>
        <ul ref={list} class="rank-rows" aria-label="Ranks" tabIndex={onSelect === undefined ? 0 : -1}>
          {rows.map((row) => (
            <li key={row.name}>
              <Row row={row} isSelected={row.name === selected} onSelect={onSelect} onText={setText}>
                <Cells row={row} map={map} onText={setText} />
                <Bar row={row} longest_ns={longest_ns} onText={setText} />
              </Row>
            </li>
          ))}
        </ul>
        <p class="muted rank-text" data-testid="rank-map-text">{text ?? (onSelect === undefined ? "Point at a step to read its value." : "Click a rank to show what it does; point at a step to read its value.")}</p>
        <ul class="rank-legend" aria-label="Legend">
          <li><i class="heat-scale" aria-hidden="true" /> {heat} {low === 0 ? "0" : duration(low)} to {duration(high)}</li>
          {parts.map(({ name, colour }) => <li key={name}><i class={`segment p${colour}`} aria-hidden="true" /> {name}</li>)}
        </ul>
      </div>
    </Panel>
  );
}

interface RowProps {
  row: RankRow;
  isSelected: boolean;
  onSelect: Props["onSelect"];
  onText: (text: string | null) => void;
  children: ComponentChildren;
}

function Row({ row, isSelected, onSelect, onText, children }: RowProps) {
  const content = (
    <>
      <span class="rank-name">{row.name}</span>
      {children}
      <span class={row.late_ns === null ? "rank-value muted" : "rank-value late"}>{valueOf(row)}</span>
    </>
  );
  if (onSelect === undefined) return <div class="rank-row">{content}</div>;
  return (
    <button type="button" class="rank-row" aria-pressed={isSelected} onClick={() => { onSelect(row.name); }} onFocus={() => { onText(describeRow(row)); }}>
      {content}
    </button>
  );
}

function Bar({ row, longest_ns, onText }: { row: RankRow; longest_ns: number; onText: (text: string | null) => void }) {
  return (
    <span class="rank-bar" onPointerMove={() => { onText(describeRow(row)); }} onPointerLeave={() => { onText(null); }}>
      {row.parts.map(({ name, colour, time_ns }) => (
        <i key={name} class={`segment p${colour}`} style={{ width: `${(100 * time_ns) / longest_ns}%` }} />
      ))}
    </span>
  );
}

function totalOf({ parts }: RankRow): number {
  return parts.reduce((sum, { time_ns }) => sum + time_ns, 0);
}

function valueOf({ late_ns, waiting_ns, parts }: RankRow): string {
  if (late_ns !== null) return `${duration(late_ns)} late`;
  if (waiting_ns !== null) return `waits ${duration(waiting_ns)}`;
  return parts.length === 0 ? "" : duration(parts.reduce((sum, { time_ns }) => sum + time_ns, 0));
}

function describeRow(row: RankRow): string {
  return `${row.name}: ${[valueOf(row), ...row.parts.map(({ name, time_ns }) => `${name} ${duration(time_ns)}`)].filter((text) => text !== "").join(", ")}.`;
}

/** Heat of one rank, one pixel per column. */
function Cells({ row, map, onText }: { row: RankRow; map: RankMapRows; onText: (text: string | null) => void }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { cells } = row;
  const [low, high] = map.extent;
  const heat = palette(dark.value).series[5] ?? "";
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (context == null) return;
    context.clearRect(0, 0, cells.length, 1);
    context.fillStyle = heat;
    for (const [column, value] of cells.entries()) {
      context.globalAlpha = value === null ? 0 : Math.min(1, Math.max(0, (value - low) / Math.max(1, high - low)));
      context.fillRect(column, 0, 1, 1);
    }
  }, [cells, low, high, heat]);
  const onPointerMove = (event: PointerEvent): void => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const column = columnAt((event.clientX - box.left) / Math.max(1, box.width), cells.length);
    onText(`${row.name}, step ${map.steps[column] ?? ""}: ${describeCell(cells[column] ?? null, map.heat)}.`);
  };
  return (
    <span class="rank-cells" onPointerMove={onPointerMove} onPointerLeave={() => { onText(null); }}>
      {cells.length === 0 ? null : <canvas ref={canvas} width={cells.length} height={1} aria-hidden="true" />}
    </span>
  );
}

function describeCell(value: number | null, heat: RankMapRows["heat"]): string {
  if (value === null) return "not recorded";
  if (heat === "step duration") return duration(value);
  return value < 0 ? `${duration(-value)} earlier than the others` : `${duration(value)} later than the others`;
}

function saveCsv({ rows, steps, heat }: RankMapRows): void {
  const header = ["rank", ...steps.map((step) => `step ${step} [ns]`)];
  save(`${heat} by rank.csv`, new Blob([csv(header, rows.map((row) => [row.name, ...row.cells]))], { type: "text/csv" }));
}
