// Made by web/api_types.py from the payloads of stepscope: do not edit.

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
  nodes: Record<string, RequestStatus>;
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

/** State of a request, or of one window of it. */
export type RequestState = "failed" | "importing" | "planned" | "recording" | "stored" | "waiting";

/** Status of a request on one node. */
export interface RequestStatus {
  state: RequestState;
  message: string;
  first_step: number | null;
  step_count: number | null;
  windows: WindowStatus[];
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

/** Status of the window of one process. */
export interface WindowStatus {
  process: string;
  number: number;
  rank: number | null;
  state: RequestState;
  reason: string | null;
}
