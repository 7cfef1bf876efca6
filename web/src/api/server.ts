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

/** Confirmation of a window request. */
export interface CaptureAccepted {
  request: string;
}

/** Progress of a window request. */
export interface CaptureProgress {
  request: string;
  finished: boolean;
  stored_count: number;
  failure: string | null;
  nodes: Record<string, WindowAnswer>;
}

/** Request for a window: number of steps and content. */
export interface CaptureRequest {
  run: string;
  steps: number;
  full: boolean;
  shapes: boolean;
  stacks: boolean;
  memory: boolean;
  flops: boolean;
  modules: boolean;
}

/** URLs that open a line in an editor; null if the file is not on this machine. */
export interface EditorLinks {
  vscode: string | null;
  pycharm: string | null;
}

/** Actions that are available on a run from this client. */
export interface RunSession {
  version: string;
  local: boolean;
  can_capture: boolean;
  why_not_capture: string | null;
  can_stop: boolean;
  why_not_stop: string | null;
}

/** Lines of a source file. */
export interface SourceLines {
  file: string;
  first_line: number;
  lines: string[];
  line: number;
  recorded: boolean;
  opens: EditorLinks;
}

/** Confirmation that the launcher has the stop request. */
export interface StopAccepted {
  by: string;
}

/** Request to stop the job of a run. */
export interface StopJobRequest {
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
