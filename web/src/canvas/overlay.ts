// Overlay above the rectangles: text, ruler, selection and arrows between slices.
import { duration } from "../base/quantities";
import { paintArrows } from "./arrows";
import { boxOf } from "./hit_test";
import { BAND_PX, RULER_PX, headerHeight, type Frame, type SliceRef } from "./scene";
import type { TextMeasurer } from "./text";
import type { Ruler } from "./ticks";
import { toPixel, widthOf } from "./viewport";

export const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

export function paintOverlay(
  context: CanvasRenderingContext2D,
  frame: Frame,
  marks: Ruler,
  measurer: TextMeasurer,
): void {
  const { scene } = frame;
  context.clearRect(0, 0, scene.width, scene.height);
  context.font = FONT;
  context.textBaseline = "middle";
  context.direction = "ltr"; // labels start at the left of their slice in every script
  paintLabels(context, frame, measurer);
  paintRange(context, frame);
  if (scene.hovered !== null) outline(context, frame, scene.hovered, 1);
  if (scene.selected !== null) outline(context, frame, scene.selected, 2);
  context.save();
  context.beginPath();
  context.rect(0, headerHeight(scene), scene.width, scene.height);
  context.clip();
  paintArrows(context, frame);
  context.restore();
  paintRuler(context, frame, marks);
  paintFindings(context, frame);
  paintNotes(context, frame, measurer);
  paintRangeEnds(context, frame, measurer);
}

function paintLabels(context: CanvasRenderingContext2D, frame: Frame, measurer: TextMeasurer): void {
  let colour = "";
  for (const label of frame.labels) {
    const text = measurer.truncate(label.text, label.maxWidth);
    if (text === "") continue;
    if (label.hasBackground === true) {
      context.globalAlpha = 0.75;
      context.fillStyle = colour = frame.ink.surface;
      context.fillRect(label.x - 3, label.y - 7, measurer.widthOf(text) + 6, 14);
      context.globalAlpha = 1;
    }
    if (label.colour !== colour) context.fillStyle = colour = label.colour;
    context.fillText(text, label.x, label.y);
  }
}

function paintRuler(context: CanvasRenderingContext2D, frame: Frame, marks: Ruler): void {
  const { scene, scale, ink } = frame;
  context.fillStyle = ink.surface;
  context.fillRect(0, 0, scene.width, RULER_PX - 1);
  context.fillStyle = ink.line;
  context.fillRect(0, RULER_PX - 1, scene.width, 1);
  const anchor = marks.anchor === null ? 0 : context.measureText(marks.anchor).width + 14;
  for (const { ns, label } of marks.ticks) {
    const x = toPixel(scale, ns);
    context.fillStyle = ink.muted;
    context.fillRect(Math.round(x), RULER_PX - 7, 1, 6);
    if (x < anchor) continue;
    context.fillStyle = ink.text;
    const width = context.measureText(label).width;
    context.fillText(label, x + 3 + width <= scene.width ? x + 3 : x - 3 - width, 11); // not cut at the edge
  }
  if (marks.anchor !== null) {
    context.fillStyle = ink.accent;
    context.fillText(marks.anchor, 4, 11);
  }
}

/** Below the ruler: a flag where a rule first triggered, and a line until it last did. */
function paintFindings(context: CanvasRenderingContext2D, frame: Frame): void {
  const { scene, scale, ink } = frame;
  context.fillStyle = ink.warn;
  const bottom = RULER_PX + BAND_PX - 1;
  for (const finding of scene.findings) {
    const x0 = toPixel(scale, finding.first_after_ns);
    const x1 = Math.max(x0 + 2, toPixel(scale, finding.last_after_ns));
    if (x1 < -8 || x0 > scene.width + 8) continue;
    const x = Math.max(-8, x0);
    context.fillRect(x, bottom - 2, Math.min(scene.width + 8, x1) - x, 2);
    context.beginPath();
    context.moveTo(x0, bottom);
    context.lineTo(x0 - 5, bottom - 9);
    context.lineTo(x0 + 5, bottom - 9);
    context.fill();
  }
}

const MAX_NOTE_PX = 180;

/** A line at each note with its text below the header, where no earlier text is in the way. */
function paintNotes(context: CanvasRenderingContext2D, frame: Frame, measurer: TextMeasurer): void {
  const { scene, scale, ink } = frame;
  const top = headerHeight(scene);
  let textEnd = -Infinity;
  for (const note of scene.notes) {
    const x0 = toPixel(scale, note.from_after_ns);
    const x1 = Math.max(x0 + 1.5, toPixel(scale, note.to_after_ns ?? note.from_after_ns));
    if (x1 < 0 || x0 > scene.width) continue;
    context.fillStyle = ink.accent;
    context.fillRect(x0, RULER_PX - 3, x1 - x0, 3);
    context.fillRect(x0, RULER_PX - 3, 1.5, scene.height);
    const x = Math.max(0, x0) + 2;
    if (x < textEnd) continue;
    const text = measurer.truncate(note.text, MAX_NOTE_PX);
    textEnd = x + measurer.widthOf(text) + 10;
    context.fillRect(x - 2, top, textEnd - x, 16);
    context.fillStyle = ink.surface;
    context.fillText(text, x + 3, top + 8);
  }
}

function paintRange(context: CanvasRenderingContext2D, frame: Frame): void {
  const { scene, scale, ink } = frame;
  if (scene.range === null) return;
  const x0 = Math.max(-2, toPixel(scale, scene.range.from));
  const x1 = Math.min(scene.width + 2, toPixel(scale, scene.range.to));
  context.globalAlpha = 0.42;
  context.fillStyle = ink.surface;
  const top = RULER_PX;
  if (x0 > 0) context.fillRect(0, top, Math.min(x0, scene.width), scene.height);
  if (x1 < scene.width) context.fillRect(Math.max(0, x1), top, scene.width, scene.height);
  context.globalAlpha = 1;
  context.fillStyle = ink.accent;
  if (x0 >= 0) context.fillRect(Math.round(x0) - 1, top, 1.5, scene.height);
  if (x1 <= scene.width) context.fillRect(Math.round(x1), top, 1.5, scene.height);
}

/** On the ruler: the duration of the range between its ends. */
function paintRangeEnds(context: CanvasRenderingContext2D, frame: Frame, measurer: TextMeasurer): void {
  const { scene, scale, ink } = frame;
  if (scene.range === null) return;
  const x0 = toPixel(scale, scene.range.from);
  const x1 = toPixel(scale, scene.range.to);
  if (x1 < 0 || x0 > scene.width) return;
  const [start, end] = [Math.max(0, x0), Math.min(scene.width, Math.max(x1, x0 + 1))];
  context.fillStyle = ink.accent;
  context.fillRect(start, RULER_PX - 4, end - start, 3);
  const text = duration(widthOf(scene.range));
  const labelWidth = measurer.widthOf(text) + 10;
  const x = Math.min(scene.width - labelWidth, Math.max(0, (start + end - labelWidth) / 2));
  context.beginPath();
  context.roundRect(x, 2, labelWidth, 18, 4);
  context.fill();
  context.fillStyle = ink.surface;
  context.fillText(text, x + 5, 11);
}

function outline(context: CanvasRenderingContext2D, frame: Frame, slice: SliceRef, line: number): void {
  const box = boxOf(frame.scene, frame.scale, slice);
  if (box === null || !box.isVisible) return;
  const x0 = Math.max(-4, box.x0);
  const x1 = Math.min(frame.scene.width + 4, Math.max(box.x1, box.x0 + 2));
  if (x1 < 0 || x0 > frame.scene.width) return;
  context.save();
  context.beginPath();
  context.rect(0, box.clipTop, frame.scene.width, box.clipBottom - box.clipTop);
  context.clip();
  const height = Math.max(3, box.bottom - box.top);
  // Two strokes, so that the outline has contrast on any fill.
  context.strokeStyle = frame.ink.surface;
  context.lineWidth = line + 2;
  context.strokeRect(x0 - 0.5, box.top - 0.5, x1 - x0 + 1, height + 1);
  context.strokeStyle = frame.ink.text;
  context.lineWidth = line;
  context.strokeRect(x0 - 0.5, box.top - 0.5, x1 - x0 + 1, height + 1);
  context.restore();
}
