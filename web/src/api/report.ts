// Made by web/api_types.py from the payloads of stepscope: do not edit.

/** One series of a histogram. */
export interface Bars {
  name: string;
  counts: number[];
  below_count: number;
  above_count: number;
}

/** The distribution of one series. */
export interface Box {
  name: string;
  count: number;
  min: number;
  whisker_low: number;
  p25: number;
  p50: number;
  p75: number;
  p95: number;
  whisker_high: number;
  max: number;
}

/** Box plots of percentages on one scale from 0 to 100. */
export interface Boxes {
  kind: "boxes";
  title: string;
  axis: string;
  boxes: Box[];
  marks: Mark[];
  more: string | null;
}

/** What a rule checked, and how that came out. */
export interface Check {
  kind: "check";
  rule: string;
  status: RuleStatus;
  summary: string;
  parameters: Parameter[];
  datapoints: number;
  violations: number;
  triggered: number;
  skipped: string | null;
  last_at: string | null;
  recommendation: string | null;
}

/** A column of a table. */
export interface Column {
  label: string;
  unit: string;
  digits: number | null;
}

/** Another cause that is worth a fix. */
export interface ContributingCause {
  suspect: "communication" | "data_pipeline" | "framework_overhead" | "healthy" | "insufficient_evidence" | "model";
  cause: string;
  share_ratio: number;
  text: string;
}

/** A fact that supports the verdict. */
export interface Evidence {
  text: string;
  value: number | null;
  unit: string;
  source: string;
}

/** A recommended change. */
export interface Fix {
  title: string;
  how: string;
  why: string;
  prediction: Prediction | null;
}

/** Metrics of a node over time, each column the mean of a piece of time. */
export interface Heatmap {
  kind: "heatmap";
  title: string;
  start: string;
  column_s: number;
  rows: HeatmapRow[];
  more: string | null;
}

/** One metric of one device. */
export interface HeatmapRow {
  name: string;
  unit: string;
  full: number;
  percent: (number | null)[];
}

/** How many values lie in each bin; series lie over one another. */
export interface Histogram {
  kind: "histogram";
  title: string;
  axis: string;
  unit: string;
  digits: number;
  counted: string;
  edges: number[];
  series: Bars[];
  marks: Mark[];
  more: string | null;
}

/** One series over another quantity. */
export interface Line {
  name: string;
  x: number[];
  y: number[];
}

/** Values over time. */
export interface Lines {
  kind: "lines";
  title: string;
  x_axis: string;
  y_axis: string;
  unit: string;
  digits: number;
  lines: Line[];
  note: string | null;
  more: string | null;
}

/** Sentences of equal rank. */
export interface Listing {
  kind: "listing";
  items: string[];
}

/** A value that is marked in a chart. */
export interface Mark {
  name: string;
  value: number;
}

/** Stands where something could not be shown: what is missing, and how it can be had. */
export interface Missing {
  kind: "missing";
  text: string;
}

/** A parameter of a rule. */
export interface Parameter {
  name: string;
  value: string;
}

/** Parts of a whole, which add up to it. */
export interface Pie {
  kind: "pie";
  title: string;
  share_of: string;
  slices: Slice[];
}

/** Predicted mean step after one change, everything else as measured. */
export interface Prediction {
  step_ns: number;
  measured_ns: number;
  saving_ratio: number;
  condition: string;
  text: string;
}

/** What people read. Ratios are 0 to 1, durations in the verdict nanoseconds. */
export interface Report {
  run_id: string;
  command: string;
  version: string;
  made_at: string;
  until: string;
  in_progress: boolean;
  about: string;
  notice: string;
  verdict: Verdict;
  sections: Section[];
  notes: string[];
}

/** State of a rule's evaluation, named as in SageMaker Debugger. */
export type RuleStatus = "Error" | "InProgress" | "IssuesFound" | "NoIssuesFound" | "NotApplicable" | "Stopped";

/** A suspect that is not the bottleneck, and the reason. */
export interface RuledOut {
  suspect: "communication" | "data_pipeline" | "framework_overhead" | "healthy" | "insufficient_evidence" | "model";
  share_ratio: number;
  why: string;
}

/** A heading and what stands below it. */
export interface Section {
  id: string;
  title: string;
  blocks: (Text | Listing | Missing | Check | Table | Boxes | Heatmap | Histogram | Lines | Pie)[];
  sections: Section[];
}

/** A part of a whole. */
export interface Slice {
  name: string;
  share_ratio: number;
}

/** A part of the suspect's share. */
export interface Stage {
  name: string;
  detail: string;
  share_ratio: number;
}

/** Rows of cells, one per column; a null cell is a value that is not known. */
export interface Table {
  kind: "table";
  title: string;
  columns: Column[];
  rows: ((string | number | null)[])[];
  share_of: string | null;
  more: string | null;
}

/** A paragraph. */
export interface Text {
  kind: "text";
  text: string;
  tone: "good" | "note" | "plain" | "warning";
}

/** The bottleneck of a job, its cause, the evidence and the fixes. */
export interface Verdict {
  suspect: "communication" | "data_pipeline" | "framework_overhead" | "healthy" | "insufficient_evidence" | "model";
  cause: string;
  share_ratio: number;
  share_of: string;
  confidence_ratio: number;
  headline: string;
  stages: Stage[];
  evidence: Evidence[];
  ruled_out: RuledOut[];
  fixes: Fix[];
  also: ContributingCause[];
  notes: string[];
  step_count: number;
  mean_step_ns: number | null;
  phases: Record<string, number>;
}
