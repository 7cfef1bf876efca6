// Widget of a notebook: metrics over time, and the events of a range that is selected by dragging.
// It is loaded by anywidget, which calls `render` with the model that it shares with Python.
import { tickLabel, tickStep } from "../canvas/ticks";
import { duration, inUnit, percent } from "../base/quantities";
import "./timeline_widget.css";

/** One metric of one device; values are null where nothing was sampled. */
export interface Row {
  label: string;
  unit: string;
  values: (number | null)[];
  /** Value at the upper edge. */
  scale: number;
}

/** Samples in bins of equal width. */
export interface Payload {
  start: string;
  duration_ns: number;
  bin_ns: number;
  rows: Row[];
}

/** Start and end, in nanoseconds after the start of the chart; empty without a selection. */
export type Selection = [number, number] | [];

export interface ShownEvent {
  name: string;
  kind: string;
  rank: number | null;
  start_ns: number;
  duration_ns: number | null;
}

export interface ShownEvents {
  count: number;
  listed: ShownEvent[];
}

interface Model {
  get(name: "payload"): Payload;
  get(name: "selection"): Selection;
  get(name: "events"): ShownEvents;
  set(name: "selection", value: Selection): void;
  save_changes(): void;
  on(name: string, listener: () => void): void;
  off(name: string, listener: () => void): void;
}

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 900;
const LABEL_WIDTH = 190;
const ROW_HEIGHT = 44;
const ROW_GAP = 8;
const AXIS_HEIGHT = 22;
const MIN_DRAG_PX = 3;
const LAST_LABEL_WIDTH = 20;
const PLOT_WIDTH = WIDTH - LABEL_WIDTH - LAST_LABEL_WIDTH;

/** Return the time at a position in the drawing, within the chart. */
export function timeAt(x: number, durationNs: number): number {
  const share = Math.min(1, Math.max(0, (x - LABEL_WIDTH) / PLOT_WIDTH));
  return Math.round(share * durationNs);
}

/** Return the path of a row: a line through the middles of its bins, broken where values are missing. */
export function linePath(row: Row, binNs: number, durationNs: number): string {
  const parts: string[] = [];
  let isOpen = false;
  row.values.forEach((value, index) => {
    if (value === null) {
      isOpen = false;
      return;
    }
    const x = LABEL_WIDTH + (PLOT_WIDTH * Math.min(durationNs, (index + 0.5) * binNs)) / durationNs;
    const y = ROW_HEIGHT * (1 - (row.scale > 0 ? Math.min(1, value / row.scale) : 0));
    parts.push(`${isOpen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`);
    if (!isOpen) parts.push("h0.1"); // a single bin is a point
    isOpen = true;
  });
  return parts.join("");
}

function svgElement(name: string, attributes: Record<string, string | number>, text = ""): SVGElement {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  element.textContent = text;
  return element;
}

function drawRows(svg: SVGElement, payload: Payload): void {
  payload.rows.forEach((row, index) => {
    const top = index * (ROW_HEIGHT + ROW_GAP);
    const group = svgElement("g", { transform: `translate(0 ${top})` });
    group.append(
      svgElement("text", { x: 0, y: 14 }, row.label),
      svgElement("text", { x: 0, y: 30, class: "scale" }, `0 to ${row.unit === "ratio" ? percent(row.scale) : inUnit(row.scale, row.unit)}`),
      svgElement("rect", { x: LABEL_WIDTH, y: 0, width: PLOT_WIDTH, height: ROW_HEIGHT, class: "frame" }),
      svgElement("path", { d: linePath(row, payload.bin_ns, payload.duration_ns), class: "line" }),
    );
    svg.append(group);
  });
}

function drawAxis(svg: SVGElement, payload: Payload, top: number): void {
  const step = tickStep((payload.duration_ns * 96) / PLOT_WIDTH);
  for (let ns = 0; ns <= payload.duration_ns; ns += step) {
    const x = LABEL_WIDTH + (PLOT_WIDTH * ns) / payload.duration_ns;
    svg.append(
      svgElement("line", { x1: x, x2: x, y1: 0, y2: top + 4, class: "tick" }),
      svgElement("text", { x, y: top + 18, class: "label" }, tickLabel(ns, step)),
    );
  }
}

function cell(text: string): HTMLTableCellElement {
  const element = document.createElement("td");
  element.textContent = text;
  return element;
}

/** Fill the list with the events of the selection. */
function showEvents(table: HTMLTableElement, summary: HTMLElement, model: Model): void {
  const selection = model.get("selection");
  const events = model.get("events");
  table.replaceChildren();
  if (selection.length === 0) {
    summary.textContent = "Drag over the chart to select a range. Double-click to clear it.";
    return;
  }
  const [start, end] = selection;
  const listed = events.listed.length < events.count ? `, the ${events.listed.length} longest are listed` : "";
  summary.textContent = `Selected ${duration(start)} to ${duration(end)}: ${events.count} events${listed}.`;
  const head = table.createTHead().insertRow();
  for (const title of ["name", "kind", "rank", "start", "duration"]) {
    const element = document.createElement("th");
    element.textContent = title;
    head.append(element);
  }
  const body = table.createTBody();
  for (const event of events.listed) {
    body
      .insertRow()
      .append(
        cell(event.name),
        cell(event.kind),
        cell(event.rank === null ? "" : String(event.rank)),
        cell(duration(event.start_ns)),
        cell(duration(event.duration_ns)),
      );
  }
}

/** Let the user select a range by dragging; `change` gets it, or an empty one after a double click. */
function followPointer(svg: SVGElement, durationNs: number, change: (selection: Selection) => void): void {
  let pressedAt: number | null = null;
  const position = (event: MouseEvent): number => {
    const box = svg.getBoundingClientRect();
    return ((event.clientX - box.left) * WIDTH) / Math.max(1, box.width);
  };
  svg.addEventListener("pointerdown", (event) => {
    pressedAt = position(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointerup", (event) => {
    if (pressedAt === null) return;
    const from = pressedAt;
    const to = position(event);
    pressedAt = null;
    if (Math.abs(to - from) < MIN_DRAG_PX) return;
    const [start, end] = [timeAt(Math.min(from, to), durationNs), timeAt(Math.max(from, to), durationNs)];
    if (start < end) change([start, end]);
  });
  svg.addEventListener("dblclick", () => {
    change([]);
  });
}

export function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  const payload = model.get("payload");
  const height = payload.rows.length * (ROW_HEIGHT + ROW_GAP);
  const root = document.createElement("div");
  root.className = "stepscope-timeline";
  const svg = svgElement("svg", { viewBox: `0 0 ${WIDTH} ${height + AXIS_HEIGHT}`, role: "img" });
  svg.setAttribute("aria-label", `Metrics over time from ${payload.start}`);
  drawRows(svg, payload);
  drawAxis(svg, payload, height);
  const shade = svgElement("rect", { y: 0, height, class: "selection", visibility: "hidden" });
  svg.append(shade);
  const summary = document.createElement("p");
  const scroller = document.createElement("div");
  scroller.className = "events";
  const table = document.createElement("table");
  scroller.append(table);
  root.append(svg, summary, scroller);
  el.append(root);

  const update = (): void => {
    const selection = model.get("selection");
    if (selection.length === 0) {
      shade.setAttribute("visibility", "hidden");
    } else {
      const [x, end] = selection.map((ns) => LABEL_WIDTH + (PLOT_WIDTH * ns) / payload.duration_ns) as [number, number];
      shade.setAttribute("x", String(x));
      shade.setAttribute("width", String(end - x));
      shade.setAttribute("visibility", "visible");
    }
    showEvents(table, summary, model);
  };
  followPointer(svg, payload.duration_ns, (selection) => {
    model.set("selection", selection);
    model.save_changes();
  });
  model.on("change:selection", update);
  model.on("change:events", update);
  update();
  return () => {
    model.off("change:selection", update);
    model.off("change:events", update);
  };
}

export default { render };
