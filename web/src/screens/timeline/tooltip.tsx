// Tooltip of the timeline. Names are text nodes: nothing is parsed as HTML.
import { signal } from "@preact/signals";

import { countOf, duration, percent } from "../../base/quantities";
import type { HitTarget, HitSlice, HitValue } from "../../canvas/hit_test";
import { valueText } from "../../canvas/paint_counters";
import { kindOf, type Slices } from "../../canvas/slices";
import { displayText } from "../../canvas/text";
import { exactTime } from "../../canvas/ticks";
import type { Model } from "./model";
import { stepUnderPointer } from "./steps";

interface TooltipState {
  title: string;
  lines: string[];
  x: number;
  y: number;
  /** Size of the canvas, to keep the tooltip within. */
  width: number;
  height: number;
}

const tooltip = signal<TooltipState | null>(null);
const MAX_TITLE_LENGTH = 240;

interface PointerTarget {
  model: Model;
  target: HitTarget;
  x: number;
  y: number;
}

export function showTooltip(pointerTarget: PointerTarget | null): void {
  const content = pointerTarget === null ? null : describeTarget(pointerTarget.model, pointerTarget.target);
  if (pointerTarget === null || content === null) {
    if (tooltip.peek() !== null) tooltip.value = null;
    return;
  }
  const { model, x, y } = pointerTarget;
  tooltip.value = { ...content, x, y, ...model.size.peek() };
}

type TooltipText = Pick<TooltipState, "title" | "lines">;

function describeTarget(model: Model, target: HitTarget): TooltipText | null {
  if (target.on === "ruler") return null;
  if (target.on === "finding") {
    const finding = model.view.peek().findings[target.index];
    return finding === undefined ? null : { title: finding.rule, lines: [finding.sentence] };
  }
  const step = stepUnderPointer(model, target);
  if (step !== null) {
    const { steps: { title }, number: stepNumber, duration_ns, outlier } = step;
    const lines = [`${duration(duration_ns)}, ${title}`];
    if (outlier) lines.push("▲ outlier: much longer than other steps");
    return { title: `Step ${stepNumber}`, lines };
  }
  if (target.on !== "line") return null;
  if (target.slice !== null) return describeSlice(target.slice);
  if (target.value !== null) return describeValue(target.line.name, target.value);
  return null;
}

function describeSlice({ slices, index }: HitSlice): TooltipText {
  const name = displayText(slices.names.full[slices.name[index] ?? 0] ?? "", MAX_TITLE_LENGTH);
  const start = slices.start[index] ?? 0;
  const length = (slices.end[index] ?? start) - start;
  const eventCount = slices.count[index] ?? 1;
  const kinds = [kindOf(slices, index)].filter((kind) => kind !== "" && kind !== "annotations");
  if ((slices.event[index] ?? -1) >= 0) {
    return { title: name, lines: [`${duration(length)}, from ${exactTime(start)}${slices.unfinished.has(index) ? ", not ended" : ""}`, ...kinds, ...partLines(slices, index, length)] };
  }
  const busy = `${percent(slices.busy[index] ?? 0)} of ${duration(length)} busy`;
  return {
    title: eventCount === 1 ? name : countOf(eventCount, "event"),
    lines: eventCount === 1 ? [busy] : [busy, `longest: ${[name, ...kinds].join(", ")}`, "zoom in to see them"],
  };
}

/** Listed parts of a slice. */
const MAX_PARTS = 8;

function partLines(slices: Slices, index: number, length: number): string[] {
  const parts = [...(slices.parts.get(index) ?? [])].sort((a, b) => b.ns - a.ns);
  const lines = parts.slice(0, MAX_PARTS).map(({ name, ns }) =>
    `${displayText(slices.names.full[name] ?? "", MAX_TITLE_LENGTH)}: ${duration(ns)} of it, ${percent(ns / Math.max(length, 1))}`);
  if (parts.length > MAX_PARTS) lines.push(`${parts.length - MAX_PARTS} more`);
  return lines;
}

function describeValue(name: string, { counter, index }: HitValue): TooltipText {
  const { unit } = counter;
  const mean = counter.mean[index] ?? 0;
  const [min, max] = [counter.min[index] ?? mean, counter.max[index] ?? mean];
  const lines = [valueText(mean, unit)];
  if (max > min) lines.push(`${valueText(min, unit)} to ${valueText(max, unit)}`);
  return { title: displayText(name, MAX_TITLE_LENGTH), lines };
}

const MAX_WIDTH_PX = 380;

export function Tooltip() {
  const current = tooltip.value;
  if (current === null) return null;
  const { x, y, width, height } = current;
  const x0 = Math.max(4, Math.min(x + 14, width - MAX_WIDTH_PX - 8));
  const vertical = y > height - 110 ? { bottom: `${height - y + 12}px` } : { top: `${y + 16}px` };
  return (
    <div class="tl-tooltip" role="presentation" style={{ left: `${x0}px`, maxWidth: `${MAX_WIDTH_PX}px`, ...vertical }}>
      <b><bdi>{current.title}</bdi></b>
      {current.lines.map((text) => <span key={text}><bdi>{text}</bdi></span>)}
    </div>
  );
}
