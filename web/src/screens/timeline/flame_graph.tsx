// A range by path of names: each box as wide as the time of its calls.
import { useMemo, useState } from "preact/hooks";

import type { FlameNode, FlameView } from "../../api/views";
import { dark } from "../../base/theme";
import { duration, number, percent } from "../../base/format";
import { colourIndex, css, sliceColours } from "../../canvas/colours";
import { flameBoxes, nodeAt, totalOf, type FlameBox } from "../../canvas/flame";
import { line, shown } from "../../canvas/text";
import type { Span } from "../../canvas/viewport";
import { useView } from "../../state/fetch";
import { Answer } from "../../widgets/answer";

const ROW_PX = 20;
/** Narrower boxes have no room for a name: shares of the width. */
const NAMED = 0.025;

export function FlameGraph({ range, tracks }: { range: Span; tracks: string }) {
  const found = useView("timeline-flame", { from_ns: range.from, to_ns: range.to, tracks });
  return <Answer of={found}>{(view) => <Graph view={view} />}</Answer>;
}

function Graph({ view }: { view: FlameView }) {
  const [path, setPath] = useState<readonly number[]>([]);
  const [pointed, setPointed] = useState<FlameNode | null>(null);
  const focus = nodeAt(view.roots, path);
  const own = focus === null ? [] : path;
  const boxes = useMemo(() => flameBoxes(view.roots, own), [view, own]);
  const depth = Math.max(0, ...boxes.map((box) => box.depth)) + 1;
  const all = Math.max(1, totalOf(view.roots));
  if (view.roots.length === 0) return <p class="muted tl-hint">Nothing ran in this range on these tracks.</p>;
  const said = pointed ?? focus;
  return (
    <div class="tl-flame" data-testid="timeline-flame">
      <p class="tl-flame-words" role="status">
        {said === null
          ? `${duration(all)} in the outermost calls. Click a box to look into it.`
          : sentence(said, all)}
        {own.length === 0 ? null : (
          <button type="button" class="quiet" onClick={() => { setPath([]); }}>Show all</button>
        )}
      </p>
      <div class="tl-flame-boxes" style={{ height: `${depth * ROW_PX}px` }} onMouseLeave={() => { setPointed(null); }}>
        {boxes.map((box) => (
          <Box key={box.path.join(".")} box={box} all={all} onGo={setPath} onPoint={setPointed} />
        ))}
      </div>
      {view.left_out_ns > 0 ? (
        <p class="muted">Paths too small to be drawn took {duration(view.left_out_ns)} of self time.</p>
      ) : null}
    </div>
  );
}

interface BoxProps {
  box: FlameBox;
  all: number;
  onGo: (path: readonly number[]) => void;
  onPoint: (node: FlameNode) => void;
}

function Box({ box, all, onGo, onPoint }: BoxProps) {
  const { node } = box;
  const colours = sliceColours(dark.value);
  const hue = colourIndex(node.name);
  return (
    <button
      type="button"
      class={box.around ? "tl-flame-box around" : "tl-flame-box"}
      tabIndex={box.width >= NAMED ? 0 : -1}
      style={{
        left: `${100 * box.left}%`,
        width: `${100 * box.width}%`,
        top: `${box.depth * ROW_PX}px`,
        background: css(colours.fill[hue] ?? 0),
        color: colours.text[hue] ?? "inherit",
      }}
      title={sentence(node, all)}
      onClick={() => { onGo(box.path); }}
      onMouseEnter={() => { onPoint(node); }}
      onFocus={() => { onPoint(node); }}
    >
      {box.width >= NAMED ? <bdi>{line(node.name)}</bdi> : null}
    </button>
  );
}

function sentence(node: FlameNode, all: number): string {
  const calls = `${number(node.count, 0)} ${node.count === 1 ? "call" : "calls"}`;
  const share = percent(node.total_ns / all, 1);
  return `${shown(node.name, 300)}: ${duration(node.total_ns)} (${share} of all), ${duration(node.self_ns)} itself, ${calls}`;
}
