// Windows that glide: to a place that was asked for, or for as long as a key is held.
import { between, panned, zoomed, type Bounds, type Span } from "./viewport";

export type Drive = "nearer" | "farther" | "earlier" | "later";

const GLIDE_MS = 180;
/** Per second: the exponent of zooming, and the share of the window that is moved by. */
const ZOOM = 2.6;
const PAN = 1.1;
/** A key that is only tapped moves as if it had been held for so long. */
const TAP_MS = 70;

interface Place {
  read: () => Span;
  write: (span: Span) => void;
  bounds: () => Bounds;
  /** Share of the width that zooming keeps in place. */
  focus: () => number;
}

export class Motion {
  private readonly held = new Set<Drive>();
  private frame = 0;
  private last = 0;

  constructor(
    private readonly place: Place,
    private readonly still: boolean,
  ) {}

  /** Go to a window, gliding unless the reader wants less motion. */
  to(target: Span): void {
    this.stop();
    if (this.still) {
      this.place.write(target);
      return;
    }
    const first = this.place.read();
    const begun = performance.now();
    const step = (now: number): void => {
      const part = Math.min(1, Math.max(0, (now - begun) / GLIDE_MS));
      this.place.write(between(first, target, 1 - (1 - part) ** 3));
      this.frame = part < 1 ? requestAnimationFrame(step) : 0;
    };
    this.frame = requestAnimationFrame(step);
  }

  /** A key is down. */
  start(drive: Drive): void {
    if (this.held.has(drive)) return;
    if (this.held.size === 0) this.stop();
    this.held.add(drive);
    this.move(drive, TAP_MS);
    if (this.frame !== 0) return;
    this.last = performance.now();
    const step = (now: number): void => {
      const passed = Math.min(100, Math.max(0, now - this.last));
      this.last = now;
      for (const each of this.held) this.move(each, passed);
      this.frame = this.held.size > 0 ? requestAnimationFrame(step) : 0;
    };
    this.frame = requestAnimationFrame(step);
  }

  end(drive: Drive): void {
    this.held.delete(drive);
  }

  stop(): void {
    this.held.clear();
    if (this.frame !== 0) cancelAnimationFrame(this.frame);
    this.frame = 0;
  }

  private move(drive: Drive, ms: number): void {
    const span = this.place.read();
    const bounds = this.place.bounds();
    const seconds = ms / 1000;
    const by = (span.to - span.from) * PAN * seconds;
    const factor = Math.exp((drive === "nearer" ? -1 : 1) * ZOOM * seconds);
    if (drive === "earlier") this.place.write(panned(span, -by, bounds));
    else if (drive === "later") this.place.write(panned(span, by, bounds));
    else this.place.write(zoomed(span, factor, this.place.focus(), bounds));
  }
}
