// What is under the pointer, in a few words beside it. Names are text: nothing in them is read.
import { signal } from "@preact/signals";

import { countOf, duration, percent } from "../../base/quantities";
import { valueText } from "../../canvas/paint_counters";
import type { Hit, HitSlice, HitValue } from "../../canvas/places";
import { shown } from "../../canvas/text";
import { exact } from "../../canvas/ticks";
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
const LONGEST = 240;

interface Pointed {
  model: Model;
  found: Hit;
  x: number;
  y: number;
}

export function showTip(pointed: Pointed | null): void {
  const words = pointed === null ? null : wordsOf(pointed.model, pointed.found);
  if (pointed === null || words === null) {
    if (tip.peek() !== null) tip.value = null;
    return;
  }
  const { model, x, y } = pointed;
  tip.value = { ...words, x, y, ...model.size.peek() };
}

type Words = Pick<Tip, "title" | "lines">;

function wordsOf(model: Model, found: Hit): Words | null {
  if (found.on === "ruler") return null;
  if (found.on === "finding") {
    const finding = model.view.peek().findings[found.place];
    return finding === undefined ? null : { title: finding.rule, lines: [finding.sentence] };
  }
  const step = stepOf(model, found);
  if (step !== null) {
    const { steps: { title }, number: step_, duration_ns, outlier } = step;
    const lines = [`${duration(duration_ns)}, ${title}`];
    if (outlier) lines.push("▲ lasts far longer than the others");
    return { title: `Step ${step_}`, lines };
  }
  if (found.on !== "line") return null;
  if (found.slice !== null) return sliceWords(found.slice);
  if (found.value !== null) return valueWords(found.line.name, found.value);
  return null;
}

function sliceWords({ slices, place }: HitSlice): Words {
  const name = shown(slices.names.full[slices.name[place] ?? 0] ?? "", LONGEST);
  const start = slices.start[place] ?? 0;
  const length = (slices.end[place] ?? start) - start;
  const eventCount = slices.count[place] ?? 1;
  if ((slices.event[place] ?? -1) >= 0) {
    return { title: name, lines: [`${duration(length)}, from ${exact(start)}`] };
  }
  const busy = `${percent(slices.busy[place] ?? 0)} of ${duration(length)} busy`;
  return {
    title: eventCount === 1 ? name : countOf(eventCount, "event"),
    lines: eventCount === 1 ? [busy] : [busy, `longest: ${name}`, "come nearer to see them"],
  };
}

function valueWords(name: string, { counter, place }: HitValue): Words {
  const { unit } = counter;
  const mean = counter.mean[place] ?? 0;
  const [least, largest] = [counter.least[place] ?? mean, counter.largest[place] ?? mean];
  const lines = [valueText(mean, unit)];
  if (largest > least) lines.push(`${valueText(least, unit)} to ${valueText(largest, unit)}`);
  return { title: shown(name, LONGEST), lines };
}

const WIDEST = 380;

export function TipBox() {
  const shownTip = tip.value;
  if (shownTip === null) return null;
  const { x, y, width, height } = shownTip;
  const left = Math.max(4, Math.min(x + 14, width - WIDEST - 8));
  const vertical = y > height - 110 ? { bottom: `${height - y + 12}px` } : { top: `${y + 16}px` };
  return (
    <div class="tl-tip" role="presentation" style={{ left: `${left}px`, maxWidth: `${WIDEST}px`, ...vertical }}>
      <b><bdi>{shownTip.title}</bdi></b>
      {shownTip.lines.map((each) => <span key={each}><bdi>{each}</bdi></span>)}
    </div>
  );
}
