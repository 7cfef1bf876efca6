// Canvases of the timeline: rectangles below, text and lines above.
import { canvas2dPainter } from "./canvas2d";
import { FONT, paintOverlay } from "./overlay";
import { paint } from "./paint";
import { Rectangles, type Painter } from "./rectangles";
import { frameOf, type Scene } from "./scene";
import { TextMeasurer } from "./text";
import { rulerMarks } from "./ticks";
import { webglPainter } from "./webgl";

export type Renderer = "webgl2" | "2d";

export class TimelineCanvas {
  readonly overlay = document.createElement("canvas");
  private readonly context = this.overlay.getContext("2d");
  private readonly rectangles = new Rectangles();
  private readonly measurer: TextMeasurer;
  private painter: Painter;
  private size = { width: 0, height: 0, ratio: 0 };

  /**
   * @param host positioned element that holds the canvases.
   * @param redraw called when the graphics context is lost and a frame is needed.
   */
  constructor(
    private readonly host: HTMLElement,
    prefer: Renderer,
    private readonly redraw: () => void,
  ) {
    const onContextLost = (): void => { this.fallBackTo2d(); };
    this.painter = (prefer === "webgl2" ? webglPainter(onContextLost) : null) ?? canvas2dPainter();
    if (this.context !== null) this.context.font = FONT;
    this.measurer = new TextMeasurer((text) => this.context?.measureText(text).width ?? 7 * text.length);
    this.painter.canvas.setAttribute("aria-hidden", "true");
    host.append(this.painter.canvas, this.overlay);
  }

  get renderer(): Renderer {
    return this.painter.kind;
  }

  /** Draw a frame and return its number of rectangles. */
  draw(scene: Scene, ratio = window.devicePixelRatio): number {
    if (this.context === null) return 0;
    this.resize(scene.width, scene.height, ratio);
    const frame = frameOf(scene, this.rectangles);
    const marks = rulerMarks(scene.span.from, scene.span.to, scene.width, scene.rulerOrigin);
    paint(frame, marks);
    this.painter.draw(this.rectangles);
    paintOverlay(this.context, frame, marks, this.measurer);
    return this.rectangles.count;
  }

  /** Wait until the last frame is on screen; for benchmarks. */
  waitForGpu(): void {
    this.painter.waitForGpu();
  }

  /** Render a scene to one canvas; must be read before the next frame. */
  snapshot(scene: Scene, background: string): HTMLCanvasElement {
    this.draw(scene, Math.max(2, window.devicePixelRatio));
    const copy = document.createElement("canvas");
    [copy.width, copy.height] = [this.overlay.width, this.overlay.height];
    const context = copy.getContext("2d");
    if (context !== null) {
      context.fillStyle = background;
      context.fillRect(0, 0, copy.width, copy.height);
      context.drawImage(this.painter.canvas, 0, 0, copy.width, copy.height);
      context.drawImage(this.overlay, 0, 0);
    }
    return copy;
  }

  dispose(): void {
    this.painter.dispose();
    this.host.replaceChildren();
  }

  private resize(width: number, height: number, ratio: number): void {
    const { size } = this;
    if (size.width === width && size.height === height && size.ratio === ratio) return;
    this.size = { width, height, ratio };
    this.painter.resize(width, height, ratio);
    this.overlay.width = Math.max(1, Math.round(width * ratio));
    this.overlay.height = Math.max(1, Math.round(height * ratio));
    this.context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  /** Continue with Canvas2D after the WebGL context is lost. */
  private fallBackTo2d(): void {
    const next = canvas2dPainter();
    next.canvas.setAttribute("aria-hidden", "true");
    this.painter.canvas.replaceWith(next.canvas);
    this.painter = next;
    this.size = { width: 0, height: 0, ratio: 0 };
    this.redraw();
  }
}
