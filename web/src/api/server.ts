// Made by web/api_types.py from the payloads of stepscope: do not edit.

/** How far a request is, on one node. */
export type AnswerState = "failed" | "importing" | "planned" | "recording" | "stored" | "waiting";

/** The window of one process. */
export interface AnsweredWindow {
  process: string;
  number: number;
  rank: number | null;
  state: AnswerState;
  reason: string | null;
}

/** How far a window is. */
export interface CaptureProgress {
  request: string;
  finished: boolean;
  stored_count: number;
  failure: string | null;
  nodes: Record<string, WindowAnswer>;
}

/** A window has been asked for. */
export interface CaptureRequested {
  request: string;
}

/** What a browser asks for: a window of so many steps, and what it holds. */
export interface CaptureWanted {
  run: string;
  steps: number;
  full: boolean;
  shapes: boolean;
  stacks: boolean;
  memory: boolean;
  flops: boolean;
  modules: boolean;
}

/** Addresses that open a line in an editor; null where the file is not on this machine. */
export interface Editors {
  vscode: string | null;
  pycharm: string | null;
}

/** What may be done with a run from here. */
export interface Session {
  version: string;
  local: boolean;
  can_capture: boolean;
  why_not_capture: string | null;
  can_stop: boolean;
  why_not_stop: string | null;
}

/** Some lines of a source file. */
export interface SourceLines {
  file: string;
  first_line: number;
  lines: string[];
  line: number;
  recorded: boolean;
  opens: Editors;
}

/** The launcher has been told to stop the job. */
export interface StopRequested {
  by: string;
}

/** What a browser asks for. */
export interface StopWanted {
  run: string;
}

/** What one node says. */
export interface WindowAnswer {
  state: AnswerState;
  message: string;
  first_step: number | null;
  step_count: number | null;
  windows: AnsweredWindow[];
}
