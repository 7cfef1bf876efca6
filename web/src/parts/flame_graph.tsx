// Flame graph: calls by path of names, each box as wide as its total time, below its caller.
import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";

import type { FlameNode } from "../api/views";
import { countOf, duration, percent } from "../base/quantities";
import { dark } from "../base/theme";
import { colourIndex, css, sliceColours } from "../canvas/colours";
import { focusFunction, invertTree } from "../canvas/flame_trees";
import { neighbourBox, flameBoxes, nodeAt, pathOf, pathText, totalTime, type FlameBox } from "../canvas/flame_layout";
import { singleLine, displayText } from "../canvas/text";
import { setParams } from "../state/url";
import { Select } from "../widgets/select";
import { useOption, useText } from "./url_options";

const ROW_PX = 20;
/** Minimum width for a label, as a share of the graph. */
const MIN_LABELLED_WIDTH = 0.025;

interface Props {
  roots: readonly FlameNode[];
  left_out_ns: number;
  /** Note below the graph. */
  note?: string | null;
  /** Accessible name of the graph. */
  label: string;
  /** Noun for the outermost boxes: "the outermost calls". */
  outermost: string;
  /** Actions on the focused box. */
  tools?: (node: FlameNode) => ComponentChildren;
}

/** The focused box is in the URL. */
export function FlameGraph({ roots: callTree, left_out_ns, note = null, label, outermost, tools }: Props) {
  const [frame, setFrame] = useText("frame");
  const [functionName] = useText("function");
  const [order, setOrder] = useOption("calls", ["callees", "callers"]);
  const roots = useMemo(() => {
    const calls = functionName === "" ? callTree : focusFunction(callTree, functionName);
    return order === "callers" ? invertTree(calls) : calls;
  }, [callTree, functionName, order]);
  const path = useMemo(() => pathOf(roots, frame), [roots, frame]);
  const boxes = useMemo(() => flameBoxes(roots, path), [roots, path]);
  const [hoveredNode, setHoveredNode] = useState<FlameNode | null>(null);
  const focus = nodeAt(roots, path);
  const totalNs = Math.max(1, totalTime(roots));
  const focusOn = (target: readonly number[]): void => { setFrame(pathText(roots, target)); };
  const describedNode = hoveredNode ?? focus;
  const notes = [left_out_ns > 0 ? `Omitted paths, too small to draw: ${duration(left_out_ns)} of self time.` : null, note]
    .filter((sentence) => sentence !== null);
  return (
    <div class="flame" data-testid="flame-graph">
      <p class="flame-description">
        <span role="status">
          {describedNode === null
            ? `${duration(totalNs)} in ${order === "callers" ? "functions themselves" : functionName === "" ? outermost : "the outermost calls of this function"}. Select a box to zoom in; use arrow keys to move.`
            : describeNode(describedNode, totalNs)}
        </span>
        <Select label="Below a box" value={order} choices={[["callees", "what it calls"], ["callers", "what calls it"]]} onChange={setOrder} />
        {functionName === "" ? null : (
          <button type="button" class="quiet" title={functionName.slice(0, 400)} onClick={() => { setParams({ function: null, frame: null }); }}>
            Only {displayText(functionName, 40)} ✕
          </button>
        )}
        {focus === null ? null : (
          <>
            <button type="button" class="quiet" onClick={() => { focusOn([]); }}>Reset zoom</button>
            {functionName === focus.name ? null : (
              <button type="button" class="quiet" onClick={() => { setParams({ function: focus.name, frame: null }); }}>Focus on function</button>
            )}
            {tools?.(focus)}
          </>
        )}
      </p>
      <Boxes boxes={boxes} totalNs={totalNs} label={label} onHover={setHoveredNode} onFocusNode={focusOn} />
      {notes.length > 0 ? <p class="muted">{notes.join(" ")}</p> : null}
    </div>
  );
}

interface BoxesProps {
  boxes: readonly FlameBox[];
  totalNs: number;
  label: string;
  onHover: (node: FlameNode | null) => void;
  onFocusNode: (path: readonly number[]) => void;
}

const keyOf = (box: FlameBox): string => box.path.join(".");

function Boxes({ boxes, totalNs, label, onHover, onFocusNode }: BoxesProps) {
  const container = useRef<HTMLDivElement>(null);
  const [focusedKey, setFocusedKey] = useState("");
  const depth = Math.max(0, ...boxes.map((box) => box.depth)) + 1;
  const focusedBox = boxes.find((box) => keyOf(box) === focusedKey) ?? boxes[0];
  const onKey = (event: KeyboardEvent): void => {
    if (focusedBox === undefined) return;
    if (event.key === "Escape" && boxes.some((box) => box.isAncestor)) {
      onFocusNode(boxes.filter((box) => box.isAncestor).at(-2)?.path ?? []);
    } else {
      const next = neighbourBox(boxes, focusedBox, event.key);
      if (next === undefined) return;
      container.current?.querySelector<HTMLElement>(`[data-path="${keyOf(next)}"]`)?.focus();
    }
    event.preventDefault();
    event.stopPropagation(); // the timeline handles arrows and Escape as well
  };
  return (
    <div class="flame-scroll">
      <div
        ref={container}
        class="flame-boxes"
        role="group"
        aria-label={label}
        style={{ height: `${depth * ROW_PX}px` }}
        onMouseLeave={() => { onHover(null); }}
        onKeyDown={onKey}
      >
        {boxes.map((box) => (
          <Box
            key={keyOf(box)}
            box={box}
            description={describeNode(box.node, totalNs)}
            isTabStop={box === focusedBox}
            onFocusNode={onFocusNode}
            onHover={() => { onHover(box.node); }}
            onFocus={() => {
              setFocusedKey(keyOf(box));
              onHover(box.node);
            }}
          />
        ))}
      </div>
    </div>
  );
}

interface BoxProps {
  box: FlameBox;
  description: string;
  /** One box is in the tab order; arrow keys reach the others. */
  isTabStop: boolean;
  onFocusNode: (path: readonly number[]) => void;
  onHover: () => void;
  onFocus: () => void;
}

function Box({ box, description, isTabStop, onFocusNode, onHover, onFocus }: BoxProps) {
  const { node } = box;
  const colours = sliceColours(dark.value);
  const hue = colourIndex(node.name);
  return (
    <button
      type="button"
      class={box.isAncestor ? "flame-box ancestor" : "flame-box"}
      data-path={keyOf(box)}
      tabIndex={isTabStop ? 0 : -1}
      style={{
        left: `${100 * box.offset}%`,
        width: `${100 * box.width}%`,
        top: `${box.depth * ROW_PX}px`,
        background: css(colours.fill[hue] ?? 0),
        color: colours.text[hue] ?? "inherit",
      }}
      title={description}
      aria-label={description}
      onClick={() => { onFocusNode(box.path); }}
      onMouseEnter={onHover}
      onFocus={onFocus}
    >
      {box.width >= MIN_LABELLED_WIDTH ? <bdi>{singleLine(node.name)}</bdi> : null}
    </button>
  );
}

function describeNode(node: FlameNode, totalNs: number): string {
  const share = percent(node.total_ns / totalNs, 1);
  return `${displayText(node.name, 300)}: ${duration(node.total_ns)} (${share} of total), ${duration(node.self_ns)} self, ${countOf(node.count, "call")}`;
}
