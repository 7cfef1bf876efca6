// State of one frame and the layout of the canvas. Painting reads nothing else.
import type { Note } from "../api/server";
import type { FindingMark, RankSteps, StandingCall } from "../api/views";
import { palette } from "../base/palette";
import type { ChunkCache } from "./chunk_cache";
import { packHex, sliceColours, type Packed, type SliceColours } from "./colours";
import type { Counter } from "./counters";
import { Rectangles } from "./rectangles";
import type { ColourBy, Slices } from "./slices";
import type { Line, Tree } from "./tree";
import { levelOf, scaleOf, type Scale, type Span } from "./viewport";

export const RULER_PX = 26;
export const BAND_PX = 20;

/** Slice with the position of its row, on any track. */
export interface SliceRef {
  track: string;
  event: number;
  row: number;
  after_ns: number;
  duration_ns: number;
  name: string;
}

export type ArrowKind = "launch" | "gradient";

/** Arrow from a slice to its effect. */
export interface Arrow {
  kind: ArrowKind;
  from: SliceRef;
  to: SliceRef;
}

export interface Scene {
  span: Span;
  width: number;
  height: number;
  dark: boolean;
  /** End of the recorded data. */
  end: number;
  tree: Tree;
  pinned: Tree;
  /** Scroll offset of the tree in pixels. */
  scrollTop: number;
  slices: ChunkCache<Slices>;
  counters: ChunkCache<Counter>;
  /** Nanoseconds by which the events of a line are shifted on screen. */
  shiftOf: (track: string) => number;
  /** Search text in lower case; empty for none. */
  query: string;
  selected: SliceRef | null;
  hovered: SliceRef | null;
  range: Span | null;
  arrows: readonly Arrow[];
  band: RankSteps | null;
  findings: readonly FindingMark[];
  /** Calls in which a stuck job is. */
  standing: readonly StandingCall[];
  /** Notes of users. */
  notes: readonly Note[];
  colourBy: ColourBy;
  /** Time at which the ruler reads zero. */
  rulerOrigin: number;
  /** Collapsed group that stands for a hidden track, or null. */
  collapsedLineOf: (track: string) => Line | null;
}

/** Part of the canvas whose lines scroll together. */
export interface Region {
  tree: Tree;
  top: number;
  bottom: number;
  /** Scroll offset at the top of the region. */
  scrollTop: number;
}

export interface Label {
  x: number;
  /** Vertical centre. */
  y: number;
  maxWidth: number;
  text: string;
  colour: string;
  /** Drawn on a background, for text above lines. */
  hasBackground?: boolean;
}

export interface Ink {
  text: string;
  muted: string;
  line: string;
  surface: string;
  accent: string;
  warn: string;
  grid: Packed;
  header: Packed;
  separator: Packed;
  outside: Packed;
  step: Packed;
  stepOdd: Packed;
  outlier: Packed;
  slices: SliceColours;
}

const inks = new Map<boolean, Ink>();

export function inkOf(dark: boolean): Ink {
  const cached = inks.get(dark);
  if (cached !== undefined) return cached;
  const { text, muted, line, surface } = palette(dark);
  const accent = dark ? "#56b4e9" : "#0072b2";
  const warn = dark ? "#f0b35e" : "#9a4b00";
  const colours: Ink = {
    text, muted, line, surface, accent, warn,
    grid: packHex(line, 0.55),
    header: packHex(muted, 0.09),
    separator: packHex(line, 0.8),
    outside: packHex(muted, 0.14),
    step: packHex(accent, 0.2),
    stepOdd: packHex(accent, 0.1),
    outlier: packHex(warn, 0.5),
    slices: sliceColours(dark),
  };
  inks.set(dark, colours);
  return colours;
}

/** Working state while a frame is painted. */
export interface Frame {
  scene: Scene;
  scale: Scale;
  level: number;
  rectangles: Rectangles;
  labels: Label[];
  ink: Ink;
}

/** Upper bound of labels per frame; more would be unreadable. */
export const MAX_LABELS = 900;

export function frameOf(scene: Scene, rectangles: Rectangles): Frame {
  rectangles.clear();
  return {
    scene,
    scale: scaleOf(scene.span, scene.width),
    level: levelOf(scene.span, scene.width),
    rectangles,
    labels: [],
    ink: inkOf(scene.dark),
  };
}

/** Height of the area above all lines. */
export function headerHeight(scene: Pick<Scene, "band" | "findings">): number {
  return RULER_PX + (scene.band !== null || scene.findings.length > 0 ? BAND_PX : 0);
}

/** Regions of the canvas: pinned lines, which do not scroll, then the tree. */
export function regions(scene: Scene): Region[] {
  const header = headerHeight(scene);
  const middle = Math.min(scene.height, header + scene.pinned.height);
  return [
    { tree: scene.pinned, top: header, bottom: middle, scrollTop: 0 },
    { tree: scene.tree, top: middle, bottom: scene.height, scrollTop: scene.scrollTop },
  ];
}
