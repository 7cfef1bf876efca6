// Actions on a running job: capture a detailed window, configure the recording, or stop the job.
import { Camera, Download, Settings2, Square } from "lucide";
import { useEffect, useState } from "preact/hooks";

import { RequestError, get, post } from "../base/client";
import type { CaptureAccepted, CaptureProgress, CaptureRequest, RunSession, StopAccepted } from "../api/server";
import { countOf } from "../base/quantities";
import { sentence } from "../base/text";
import { useGet } from "../state/fetch";
import { run } from "../state/url";
import { ConfirmDialog } from "../widgets/dialog";
import { Icon } from "../widgets/icon";
import { ConfigureDialog } from "./configure_dialog";

type Detail = Omit<CaptureRequest, "run" | "steps">;

const DETAIL_LABELS: readonly (readonly [keyof Detail, string])[] = [
  ["full", "operators"],
  ["shapes", "input shapes"],
  ["stacks", "Python stacks"],
  ["memory", "memory"],
  ["flops", "FLOPs"],
  ["modules", "modules"],
];
const DEFAULT_DETAIL: Detail = {
  full: true, shapes: false, stacks: false, memory: false, flops: false, modules: false,
};
const POLL_MS = 1_000;

export function JobActions() {
  return run.value === null ? null : <Actions key={run.value} id={run.value} />;
}

function Actions({ id }: { id: string }) {
  const session = useGet<RunSession>("/api/session", { run: id }).data;
  const [openDialog, setOpenDialog] = useState<"capture" | "configure" | "stop" | null>(null);
  const [status, setStatus] = useState("");
  const [request, setRequest] = useState<string | null>(null);
  useProgress(id, request, setStatus);
  if (session === null) return null;
  const cancel = (): void => { setOpenDialog(null); };
  const showError = (error: unknown): void => {
    setStatus(error instanceof RequestError ? error.message : String(error));
  };
  const capture = (steps: number, detail: Detail): void => {
    setOpenDialog(null);
    setStatus("Requesting a window …");
    const body: CaptureRequest = { run: id, steps, ...detail };
    post<CaptureAccepted>("/api/capture", body).then((accepted) => { setRequest(accepted.request); }, showError);
  };
  const stop = (): void => {
    setOpenDialog(null);
    post<StopAccepted>("/api/stop", { run: id }).then(() => { setStatus("Stop requested."); }, showError);
  };
  return (
    <>
      <span class="muted" role="status">{status}</span>
      <a class="action" href={`/api/report?${new URLSearchParams({ run: id })}`} download>
        <Icon icon={Download} size={16} /> Report
      </a>
      {session.can_capture ? (
        <button type="button" class="action" onClick={() => { setOpenDialog("capture"); }}>
          <Icon icon={Camera} size={16} /> Capture steps
        </button>
      ) : null}
      <ConfigureButton obstacle={session.why_not_configure} onOpen={() => { setOpenDialog("configure"); }} onRefuse={setStatus} />
      {session.can_stop ? (
        <button type="button" class="action danger" onClick={() => { setOpenDialog("stop"); }}>
          <Icon icon={Square} size={14} /> Stop job
        </button>
      ) : null}
      {openDialog === "capture" ? <CaptureDialog onCancel={cancel} onConfirm={capture} /> : null}
      {openDialog === "configure" ? (
        <ConfigureDialog id={id} onCancel={cancel} onDone={(text) => { cancel(); setStatus(text); }} />
      ) : null}
      {openDialog === "stop" ? (
        <ConfirmDialog title="Stop this job?" confirmLabel="Stop job" onCancel={cancel} onConfirm={stop}>
          <p>The launcher of <b>{id}</b> sends a termination signal to the job, and kills it after a grace period.</p>
        </ConfirmDialog>
      ) : null}
    </>
  );
}

interface ConfigureButtonProps {
  /** Reason why the configuration cannot be changed; null when it can. */
  obstacle: string | null;
  onOpen: () => void;
  onRefuse: (reason: string) => void;
}

/** Button that stays focusable without a running job, so that its reason can be read. */
function ConfigureButton({ obstacle, onOpen, onRefuse }: ConfigureButtonProps) {
  return (
    <button
      type="button"
      class="action"
      aria-disabled={obstacle !== null}
      title={obstacle === null ? undefined : sentence(obstacle)}
      onClick={() => { if (obstacle === null) onOpen(); else onRefuse(sentence(obstacle)); }}
    >
      <Icon icon={Settings2} size={16} /> Configure
    </button>
  );
}

/** Poll the progress of a window request and report its status until it is finished. */
function useProgress(id: string, request: string | null, onStatus: (text: string) => void): void {
  useEffect(() => {
    if (request === null) return undefined;
    const abort = new AbortController();
    let timer = 0;
    const poll = async (): Promise<void> => {
      try {
        const progress = await get<CaptureProgress>("/api/capture", { run: id, request }, abort.signal);
        onStatus(progressText(progress));
        if (!progress.finished) timer = window.setTimeout(() => void poll(), POLL_MS);
      } catch (error) {
        if (!abort.signal.aborted) onStatus(error instanceof Error ? error.message : String(error));
      }
    };
    void poll();
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [id, request]);
}

/** Describe the state of a window request. */
export function progressText(progress: CaptureProgress): string {
  if (progress.failure !== null) return progress.failure;
  if (progress.finished) return `Added ${countOf(progress.stored_count, "window")} to the run.`;
  return Object.values(progress.nodes)[0]?.message ?? "Waiting for the monitor …";
}

interface CaptureDialogProps {
  onCancel: () => void;
  onConfirm: (steps: number, detail: Detail) => void;
}

function CaptureDialog({ onCancel, onConfirm }: CaptureDialogProps) {
  const [steps, setSteps] = useState(20);
  const [detail, setDetail] = useState(DEFAULT_DETAIL);
  return (
    <ConfirmDialog
      title="Capture a detailed window"
      confirmLabel={`Capture ${steps} steps`}
      onCancel={onCancel}
      onConfirm={() => { onConfirm(steps, detail); }}
    >
      <p class="muted">Records the same steps on every rank, down to kernels. More detail adds overhead to the job while the window is open.</p>
      <label class="choice">
        <span>Steps</span>
        <input
          type="number"
          min="1"
          max="10000"
          value={steps}
          onInput={(event) => { setSteps(Math.max(1, Math.min(10_000, Math.round(Number(event.currentTarget.value) || 1)))); }}
        />
      </label>
      <fieldset class="checks">
        <legend>Detail</legend>
        {DETAIL_LABELS.map(([name, detailLabel]) => (
          <label key={name}>
            <input
              type="checkbox"
              checked={detail[name]}
              onChange={(event) => { setDetail({ ...detail, [name]: event.currentTarget.checked }); }}
            />{" "}
            {detailLabel}
          </label>
        ))}
      </fieldset>
    </ConfirmDialog>
  );
}
