// What can be done with a running job: open a detailed window, or stop it.
import { Camera, Square } from "lucide";
import { useEffect, useState } from "preact/hooks";

import { Failure, get, post } from "../api/client";
import type {
  CaptureProgress, CaptureAccepted, CaptureRequest, RunSession, StopAccepted,
} from "../api/server";
import { useGet } from "../state/fetch";
import { run } from "../state/url";
import { Confirm } from "../widgets/confirm";
import { Icon } from "../widgets/icon";

type Depth = Omit<CaptureRequest, "run" | "steps">;

const DEPTHS: readonly (readonly [keyof Depth, string])[] = [
  ["full", "operators"],
  ["shapes", "shapes of inputs"],
  ["stacks", "Python stacks"],
  ["memory", "memory"],
  ["flops", "FLOPs"],
  ["modules", "modules"],
];
const SHALLOW: Depth = {
  full: true, shapes: false, stacks: false, memory: false, flops: false, modules: false,
};
const POLL_MS = 1_000;

export function Capture() {
  return run.value === null ? null : <Actions key={run.value} id={run.value} />;
}

function Actions({ id }: { id: string }) {
  const session = useGet<RunSession>("/api/session", { run: id }).data;
  const [asking, setAsking] = useState<"capture" | "stop" | null>(null);
  const [said, setSaid] = useState("");
  const [request, setRequest] = useState<string | null>(null);
  useProgress(id, request, setSaid);
  if (session === null) return null;
  const cancel = (): void => { setAsking(null); };
  const refused = (error: unknown): void => {
    setSaid(error instanceof Failure ? error.message : String(error));
  };
  const capture = (steps: number, depth: Depth): void => {
    setAsking(null);
    setSaid("Asking the job …");
    const wanted: CaptureRequest = { run: id, steps, ...depth };
    post<CaptureAccepted>("/api/capture", wanted).then((made) => { setRequest(made.request); }, refused);
  };
  const stop = (): void => {
    setAsking(null);
    post<StopAccepted>("/api/stop", { run: id }).then(() => { setSaid("The job was told to stop."); }, refused);
  };
  return (
    <>
      <span class="said muted" role="status">{said}</span>
      {session.can_capture ? (
        <button type="button" class="action" onClick={() => { setAsking("capture"); }}>
          <Icon icon={Camera} size={16} /> Capture steps
        </button>
      ) : null}
      {session.can_stop ? (
        <button type="button" class="action danger" onClick={() => { setAsking("stop"); }}>
          <Icon icon={Square} size={14} /> Stop job
        </button>
      ) : null}
      {asking === "capture" ? <Window onCancel={cancel} onGo={capture} /> : null}
      {asking === "stop" ? (
        <Confirm title="Stop this job?" action="Stop the job" onCancel={cancel} onGo={stop}>
          <p>The training of <b>{id}</b> ends: its launcher sends it a signal to finish, and ends it if it does not.</p>
        </Confirm>
      ) : null}
    </>
  );
}

/** Says how far a window is until nothing more will happen to it. */
function useProgress(id: string, request: string | null, say: (text: string) => void): void {
  useEffect(() => {
    if (request === null) return undefined;
    const abort = new AbortController();
    let timer = 0;
    const ask = async (): Promise<void> => {
      try {
        const told = await get<CaptureProgress>("/api/capture", { run: id, request }, abort.signal);
        say(progress(told));
        if (!told.finished) timer = window.setTimeout(() => void ask(), POLL_MS);
      } catch (error) {
        if (!abort.signal.aborted) say(error instanceof Error ? error.message : String(error));
      }
    };
    void ask();
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [id, request]);
}

/** What a reader wants to know of a window that was asked for. */
export function progress(told: CaptureProgress): string {
  if (told.failure !== null) return told.failure;
  if (told.finished) {
    return told.stored_count === 1 ? "A window is in the run." : `${told.stored_count} windows are in the run.`;
  }
  return Object.values(told.nodes)[0]?.message ?? "Waiting for the monitor …";
}

interface WindowProps {
  onCancel: () => void;
  onGo: (steps: number, depth: Depth) => void;
}

function Window({ onCancel, onGo }: WindowProps) {
  const [steps, setSteps] = useState(20);
  const [depth, setDepth] = useState(SHALLOW);
  return (
    <Confirm
      title="Capture a detailed window now"
      action={`Capture ${steps} steps`}
      onCancel={onCancel}
      onGo={() => { onGo(steps, depth); }}
    >
      <p class="muted">The same steps of every rank are recorded down to the kernel. More depth costs the job more while the window is open.</p>
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
        <legend>Depth</legend>
        {DEPTHS.map(([name, words]) => (
          <label key={name}>
            <input
              type="checkbox"
              checked={depth[name]}
              onChange={(event) => { setDepth({ ...depth, [name]: event.currentTarget.checked }); }}
            />{" "}
            {words}
          </label>
        ))}
      </fieldset>
    </Confirm>
  );
}
