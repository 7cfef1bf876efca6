// What is under the pointer, in a few words beside it. Names are text: nothing in them is read.
import { signal } from "@preact/signals";

import { countOf, duration, percent } from "../../base/quantities";
import { valueText } from "../../canvas/paint_counters";
import type { HitTarget, HitSlice, HitValue } from "../../canvas/places";
import { displayText } from "../../canvas/text";
import { exactTime } from "../../canvas/ticks";
import type { Model } from "./model";
import { stepOf } from "./steps";

interface Tip {
  title: string;
  lines: string[];
  x: number;
  y: number;
  /** Of the picture, to keep the box within. */
  width: number;
  height: number;
}

const tip = signal<Tip | null>(null);
const MAX_TITLE_LENGTH = 240;

interface Pointed {
  model: Model;
  target: HitTarget;
  x: number;
  y: number;
}

export function showTip(pointed: Pointed | null): void {
  const words = pointed === null ? null : wordsOf(pointed.model, pointed.target);
  if (pointed === null || words === null) {
    if (tip.peek() !== null) tip.value = null;
    return;
  }
  const { model, x, y } = pointed;
  tip.value = { ...words, x, y, ...model.size.peek() };
}

type Words = Pick<Tip, "title" | "lines">;

function wordsOf(model: Model, target: HitTarget): Words | null {
  if (target.on === "ruler") return null;
  if (target.on === "finding") {
    const finding = model.view.peek().findings[target.index];
    return finding === undefined ? null : { title: finding.rule, lines: [finding.sentence] };
  }
  const step = stepOf(model, target);
  if (step !== null) {
    const { steps: { title }, number: step_, duration_ns, outlier } = step;
    const lines = [`${duration(duration_ns)}, ${title}`];
    if (outlier) lines.push("▲ lasts far longer than the others");
    return { title: `Step ${step_}`, lines };
  }
  if (target.on !== "line") return null;
  if (target.slice !== null) return sliceWords(target.slice);
  if (target.value !== null) return valueWords(target.line.name, target.value);
  return null;
}

function sliceWords({ slices, index }: HitSlice): Words {
  const name = displayText(slices.names.full[slices.name[index] ?? 0] ?? "", MAX_TITLE_LENGTH);
  const start = slices.start[index] ?? 0;
  const length = (slices.end[index] ?? start) - start;
  const eventCount = slices.count[index] ?? 1;
  if ((slices.event[index] ?? -1) >= 0) {
    return { title: name, lines: [`${duration(length)}, from ${exactTime(start)}`] };
  }
  const busy = `${percent(slices.busy[index] ?? 0)} of ${duration(length)} busy`;
  return {
    title: eventCount === 1 ? name : countOf(eventCount, "event"),
    lines: eventCount === 1 ? [busy] : [busy, `longest: ${name}`, "come nearer to see them"],
  };
}

function valueWords(name: string, { counter, index }: HitValue): Words {
  const { unit } = counter;
  const mean = counter.mean[index] ?? 0;
  const [min, max] = [counter.min[index] ?? mean, counter.max[index] ?? mean];
  const lines = [valueText(mean, unit)];
  if (max > min) lines.push(`${valueText(min, unit)} to ${valueText(max, unit)}`);
  return { title: displayText(name, MAX_TITLE_LENGTH), lines };
}

const WIDEST = 380;

export function TipBox() {
  const shownTip = tip.value;
  if (shownTip === null) return null;
  const { x, y, width, height } = shownTip;
  const x0 = Math.max(4, Math.min(x + 14, width - WIDEST - 8));
  const vertical = y > height - 110 ? { bottom: `${height - y + 12}px` } : { top: `${y + 16}px` };
  return (
    <div class="tl-tip" role="presentation" style={{ left: `${x0}px`, maxWidth: `${WIDEST}px`, ...vertical }}>
      <b><bdi>{shownTip.title}</bdi></b>
      {shownTip.lines.map((text) => <span key={text}><bdi>{text}</bdi></span>)}
    </div>
  );
}
