// Arrows from a slice to its effect: solid for launches, dashed for gradients. An arrow to a slice
// out of view ends at the edge of the canvas.
import { boxOf } from "./hit_test";
import type { Arrow, Frame } from "./scene";

const OVERSHOOT_PX = 14;
const HEAD_PX = 6;

export function paintArrows(context: CanvasRenderingContext2D, frame: Frame): void {
  for (const arrow of frame.scene.arrows) paintArrow(context, frame, arrow);
}

export interface ArrowEnds {
  x0: number;
  y0: number;
  x1: number;
  y1: number;
}

/** Compute both ends of an arrow. It starts inside its cause if the effect starts before the cause
 * ends. */
export function arrowEnds(frame: Pick<Frame, "scene" | "scale">, arrow: Arrow): ArrowEnds | null {
  const { scene, scale } = frame;
  const from = boxOf(scene, scale, arrow.from);
  const to = boxOf(scene, scale, arrow.to);
  if (from === null || to === null) return null;
  const clampX = (x: number): number => Math.min(scene.width + OVERSHOOT_PX, Math.max(-OVERSHOOT_PX, x));
  const clampY = (y: number): number => Math.min(scene.height + OVERSHOOT_PX, Math.max(-OVERSHOOT_PX, y));
  const startX = to.x0 >= from.x1 ? from.x1 : Math.max(from.x0, Math.min(from.x1, to.x0));
  return {
    x0: clampX(startX),
    y0: clampY((from.top + from.bottom) / 2),
    x1: clampX(to.x0),
    y1: clampY((to.top + to.bottom) / 2),
  };
}

function paintArrow(context: CanvasRenderingContext2D, frame: Frame, arrow: Arrow): void {
  const endpoints = arrowEnds(frame, arrow);
  if (endpoints === null) return;
  const { x0, y0, x1, y1 } = endpoints;
  const bend = Math.min(120, Math.max(14, Math.abs(x1 - x0) / 2));
  const curve = (): void => {
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - HEAD_PX, y1);
    context.stroke();
  };
  context.save();
  context.lineCap = "round";
  context.strokeStyle = frame.ink.surface;
  context.lineWidth = 4.5;
  curve();
  const colour = arrow.kind === "launch" ? frame.ink.warn : frame.ink.accent;
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = 2;
  if (arrow.kind === "gradient") context.setLineDash([6, 4]);
  curve();
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - HEAD_PX - 2, y1 - 4.5);
  context.lineTo(x1 - HEAD_PX - 2, y1 + 4.5);
  context.fill();
  context.beginPath();
  context.arc(x0, y0, 3, 0, 2 * Math.PI);
  context.fill();
  context.restore();
}
