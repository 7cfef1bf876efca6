// Animated changes of the window: to a target, or while a key is held.
import { interpolate, panSpan, zoomSpan, type Bounds, type Span } from "./viewport";

export type Direction = "zoom-in" | "zoom-out" | "pan-left" | "pan-right";

const ANIMATION_MS = 180;
/** Per second: exponent of zooming, and panned share of the window. */
const ZOOM = 2.6;
const PAN = 1.1;
/** A key that is only tapped moves as if held for this time. */
const KEY_TAP_MS = 70;

interface AnimatedView {
  read: () => Span;
  write: (span: Span) => void;
  bounds: () => Bounds;
  /** Share of the width that zooming keeps in position. */
  focus: () => number;
}

export class ViewAnimator {
  private readonly activeDirections = new Set<Direction>();
  private frame = 0;
  private last = 0;

  constructor(
    private readonly view: AnimatedView,
    private readonly reducedMotion: boolean,
  ) {}

  /** Animate to a window, or jump there with reduced motion. */
  animateTo(target: Span): void {
    this.cancel();
    if (this.reducedMotion) {
      this.view.write(target);
      return;
    }
    const first = this.view.read();
    const startTime = performance.now();
    const step = (now: number): void => {
      const progress = Math.min(1, Math.max(0, (now - startTime) / ANIMATION_MS));
      this.view.write(interpolate(first, target, 1 - (1 - progress) ** 3));
      this.frame = progress < 1 ? requestAnimationFrame(step) : 0;
    };
    this.frame = requestAnimationFrame(step);
  }

  /** Start moving when a key goes down. */
  startMoving(direction: Direction): void {
    if (this.activeDirections.has(direction)) return;
    if (this.activeDirections.size === 0) this.cancel();
    this.activeDirections.add(direction);
    this.move(direction, KEY_TAP_MS);
    if (this.frame !== 0) return;
    this.last = performance.now();
    const step = (now: number): void => {
      const elapsedMs = Math.min(100, Math.max(0, now - this.last));
      this.last = now;
      for (const active of this.activeDirections) this.move(active, elapsedMs);
      this.frame = this.activeDirections.size > 0 ? requestAnimationFrame(step) : 0;
    };
    this.frame = requestAnimationFrame(step);
  }

  stopMoving(direction: Direction): void {
    this.activeDirections.delete(direction);
  }

  cancel(): void {
    this.activeDirections.clear();
    if (this.frame !== 0) cancelAnimationFrame(this.frame);
    this.frame = 0;
  }

  private move(direction: Direction, ms: number): void {
    const span = this.view.read();
    const bounds = this.view.bounds();
    const seconds = ms / 1000;
    const distanceNs = (span.to - span.from) * PAN * seconds;
    const factor = Math.exp((direction === "zoom-in" ? -1 : 1) * ZOOM * seconds);
    if (direction === "pan-left") this.view.write(panSpan(span, -distanceNs, bounds));
    else if (direction === "pan-right") this.view.write(panSpan(span, distanceNs, bounds));
    else this.view.write(zoomSpan(span, factor, this.view.focus(), bounds));
  }
}
