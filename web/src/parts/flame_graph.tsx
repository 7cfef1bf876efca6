// Calls by path of names: each box as wide as the time of its calls, below what it is inside.
import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";

import type { FlameNode } from "../api/views";
import { dark } from "../base/theme";
import { countOf, duration, percent } from "../base/quantities";
import { colourIndex, css, sliceColours } from "../canvas/colours";
import { boxBeside, flameBoxes, nodeAt, pathOf, pathText, totalOf, type FlameBox } from "../canvas/flame";
import { line, shown } from "../canvas/text";
import { useText } from "./options";

const ROW_PX = 20;
/** Narrower boxes have no room for a name: shares of the width. */
const NAMED = 0.025;

interface Props {
  roots: readonly FlameNode[];
  left_out_ns: number;
  /** Another sentence below the graph. */
  note?: string | null;
  /** What is drawn, for those who do not see it. */
  label: string;
  /** What the widest boxes stand for: "the outermost calls". */
  outermost: string;
  /** What can be done with the box that is looked into. */
  tools?: (node: FlameNode) => ComponentChildren;
}

/** The box that is looked into is in the address. */
export function FlameGraph({ roots, left_out_ns, note = null, label, outermost, tools }: Props) {
  const [text, setText] = useText("frame");
  const path = useMemo(() => pathOf(roots, text), [roots, text]);
  const boxes = useMemo(() => flameBoxes(roots, path), [roots, path]);
  const [pointed, setPointed] = useState<FlameNode | null>(null);
  const focus = nodeAt(roots, path);
  const all = Math.max(1, totalOf(roots));
  const look = (into: readonly number[]): void => { setText(pathText(roots, into)); };
  const said = pointed ?? focus;
  const notes = [left_out_ns > 0 ? `Paths too small to be drawn took ${duration(left_out_ns)} of self time.` : null, note];
  return (
    <div class="flame" data-testid="flame-graph">
      <p class="flame-words">
        <span role="status">
          {said === null
            ? `${duration(all)} in ${outermost}. Choose a box to look into it; arrow keys go from box to box.`
            : sentence(said, all)}
        </span>
        {focus === null ? null : (
          <>
            <button type="button" class="quiet" onClick={() => { look([]); }}>Show all</button>
            {tools?.(focus)}
          </>
        )}
      </p>
      <Boxes boxes={boxes} all={all} label={label} onPoint={setPointed} onLook={look} />
      {notes.some((each) => each !== null) ? <p class="muted">{notes.filter((each) => each !== null).join(" ")}</p> : null}
    </div>
  );
}

interface BoxesProps {
  boxes: readonly FlameBox[];
  all: number;
  label: string;
  onPoint: (node: FlameNode | null) => void;
  onLook: (path: readonly number[]) => void;
}

const keyOf = (box: FlameBox): string => box.path.join(".");

function Boxes({ boxes, all, label, onPoint, onLook }: BoxesProps) {
  const place = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState("");
  const depth = Math.max(0, ...boxes.map((box) => box.depth)) + 1;
  const reached = boxes.find((box) => keyOf(box) === at) ?? boxes[0];
  const onKey = (event: KeyboardEvent): void => {
    if (reached === undefined) return;
    if (event.key === "Escape" && boxes.some((box) => box.around)) {
      onLook(boxes.filter((box) => box.around).at(-2)?.path ?? []);
    } else {
      const next = boxBeside(boxes, reached, event.key);
      if (next === undefined) return;
      place.current?.querySelector<HTMLElement>(`[data-path="${keyOf(next)}"]`)?.focus();
    }
    event.preventDefault();
    event.stopPropagation(); // arrows and Escape have meanings of their own on the timeline
  };
  return (
    <div class="flame-scroll">
      <div
        ref={place}
        class="flame-boxes"
        role="group"
        aria-label={label}
        style={{ height: `${depth * ROW_PX}px` }}
        onMouseLeave={() => { onPoint(null); }}
        onKeyDown={onKey}
      >
        {boxes.map((box) => (
          <Box
            key={keyOf(box)}
            box={box}
            words={sentence(box.node, all)}
            reached={box === reached}
            onLook={onLook}
            onPoint={() => { onPoint(box.node); }}
            onFocus={() => {
              setAt(keyOf(box));
              onPoint(box.node);
            }}
          />
        ))}
      </div>
    </div>
  );
}

interface BoxProps {
  box: FlameBox;
  words: string;
  /** One box is reached by the tabulator, the others from it. */
  reached: boolean;
  onLook: (path: readonly number[]) => void;
  onPoint: () => void;
  onFocus: () => void;
}

function Box({ box, words, reached, onLook, onPoint, onFocus }: BoxProps) {
  const { node } = box;
  const colours = sliceColours(dark.value);
  const hue = colourIndex(node.name);
  return (
    <button
      type="button"
      class={box.around ? "flame-box around" : "flame-box"}
      data-path={keyOf(box)}
      tabIndex={reached ? 0 : -1}
      style={{
        left: `${100 * box.left}%`,
        width: `${100 * box.width}%`,
        top: `${box.depth * ROW_PX}px`,
        background: css(colours.fill[hue] ?? 0),
        color: colours.text[hue] ?? "inherit",
      }}
      title={words}
      aria-label={words}
      onClick={() => { onLook(box.path); }}
      onMouseEnter={onPoint}
      onFocus={onFocus}
    >
      {box.width >= NAMED ? <bdi>{line(node.name)}</bdi> : null}
    </button>
  );
}

function sentence(node: FlameNode, all: number): string {
  const share = percent(node.total_ns / all, 1);
  return `${shown(node.name, 300)}: ${duration(node.total_ns)} (${share} of all), ${duration(node.self_ns)} itself, ${countOf(node.count, "call")}`;
}
