// Dialog that changes the recording of a running job: sampling interval, windows and rules.
import { useEffect, useRef, useState } from "preact/hooks";

import { RequestError, get, post } from "../base/client";
import type { ConfigureAccepted, ConfigureProgress, ConfigureRequest } from "../api/server";
import type { ConfigurationView } from "../api/views";
import { duration } from "../base/quantities";
import { sentence } from "../base/text";
import { useGet } from "../state/fetch";
import { ConfirmDialog } from "../widgets/dialog";
import { Skeleton } from "../widgets/resource_view";
import { Select } from "../widgets/select";
import { configureRequest, currentForm, type Form } from "./configure_form";

const POLL_MS = 500;

interface Props {
  id: string;
  onCancel: () => void;
  /** Called with what happened, when the job has the new configuration. */
  onDone: (text: string) => void;
}

export function ConfigureDialog({ id, onCancel, onDone }: Props) {
  const { data, error: loadError } = useGet<ConfigurationView>("/api/views/configuration", { run: id });
  const [changes, setChanges] = useState<Partial<Form>>({});
  const [error, setError] = useState("");
  const [applying, setApplying] = useState(false);
  const abort = useRef(new AbortController());
  useEffect(() => () => { abort.current.abort(); }, []);
  const form = data === null ? null : currentForm(data, changes);
  const change = (fields: Partial<Form>): void => { setChanges((before) => ({ ...before, ...fields })); };
  const apply = (): void => {
    if (data === null || form === null || applying) return;
    setApplying(true);
    setError("");
    applyChange(configureRequest(id, data, form), abort.current.signal).then(onDone, (reason: unknown) => {
      if (abort.current.signal.aborted) return;
      setApplying(false);
      setError(reason instanceof RequestError ? reason.message : String(reason));
    });
  };
  return (
    <ConfirmDialog title="Configure monitoring" confirmLabel={applying ? "Applying …" : "Apply"} onCancel={onCancel} onConfirm={apply}>
      <p class="muted">Changes take effect within seconds. Each is stored with the run, with its time.</p>
      {form === null || data === null ? loadError === null ? <Skeleton /> : null : <Fields payload={data} form={form} change={change} />}
      {error === "" && loadError === null ? null : <p class="error-notice" role="alert">{sentence(error || (loadError?.message ?? ""))}</p>}
    </ConfirmDialog>
  );
}

/** Request a change, and wait until it is applied; throws the reason of a refusal. */
async function applyChange(body: ConfigureRequest, signal: AbortSignal): Promise<string> {
  const { number } = await post<ConfigureAccepted>("/api/configure", body);
  if (number === null) return "Nothing to change.";
  for (;;) {
    const progress = await get<ConfigureProgress>("/api/configure", { run: body.run, number }, signal);
    if (progress.failure !== null) throw new RequestError(progress.failure, 0);
    if (progress.finished) return "Configuration changed.";
    await new Promise((resolve) => { window.setTimeout(resolve, POLL_MS); });
  }
}

interface FieldsProps {
  payload: ConfigurationView;
  form: Form;
  change: (fields: Partial<Form>) => void;
}

function Fields({ payload, form, change }: FieldsProps) {
  const current = payload.interval_ns;
  // A script may have started the recording with another interval.
  const intervals = [...new Set([...payload.interval_choices_ns, ...(current === null ? [] : [current])])].sort((a, b) => a - b);
  return (
    <>
      <Select
        label="Sampling interval"
        value={form.intervalNs}
        choices={intervals.map((interval) => [String(interval), duration(interval)] as const)}
        onChange={(intervalNs) => { change({ intervalNs }); }}
      />
      <fieldset>
        <legend>Detailed windows</legend>
        <Check label="Automatic windows" checked={form.automatic} onChange={(automatic) => { change({ automatic }); }} />
        {payload.schedules.length === 0 ? <p class="muted">No window is scheduled.</p> : (
          <>
            <ul>{payload.schedules.map((text) => <li key={text}>{text}</li>)}</ul>
            <Check label="Remove these schedules" checked={form.removesSchedules} onChange={(removesSchedules) => { change({ removesSchedules }); }} />
          </>
        )}
        <NumberField label="New window after step" value={form.firstStep} minimum={0} onChange={(firstStep) => { change({ firstStep }); }} />
        <NumberField label="Steps" value={form.stepCount} minimum={1} onChange={(stepCount) => { change({ stepCount }); }} />
        <NumberField label="Repeat every … steps" value={form.interval} minimum={1} onChange={(interval) => { change({ interval }); }} />
      </fieldset>
      {payload.rules.length === 0 ? <p class="muted">No rules are evaluated while this job runs.</p> : (
        <RuleFields payload={payload} form={form} change={change} />
      )}
    </>
  );
}

function RuleFields({ payload, form, change }: FieldsProps) {
  const toggle = (name: string, checked: boolean): void => {
    const toggledRules = new Set(form.toggledRules);
    if (checked === payload.rules.includes(name)) toggledRules.delete(name);
    else toggledRules.add(name);
    change({ toggledRules });
  };
  return (
    <fieldset>
      <legend>Rules</legend>
      <div class="choices" tabIndex={0} role="group" aria-label="Rules to evaluate">
        {[...payload.rules, ...payload.other_rules].map((name) => (
          <Check key={name} label={name} checked={form.toggledRules.has(name) !== payload.rules.includes(name)} onChange={(checked) => { toggle(name, checked); }} />
        ))}
      </div>
      {payload.parameters.length === 0 ? null : <p class="muted">Set: {payload.parameters.join(", ")}</p>}
      <label class="choice">
        <span>Parameters</span>
        <input
          type="text"
          placeholder="StepOutlier.stddev=4"
          value={form.parameters}
          onInput={(event) => { change({ parameters: event.currentTarget.value }); }}
        />
      </label>
    </fieldset>
  );
}

function Check({ label, checked, onChange }: { label: string; checked: boolean; onChange: (checked: boolean) => void }) {
  return (
    <label>
      <input type="checkbox" checked={checked} onChange={(event) => { onChange(event.currentTarget.checked); }} /> {label}
    </label>
  );
}

function NumberField({ label, value, minimum, onChange }: { label: string; value: string; minimum: number; onChange: (value: string) => void }) {
  return (
    <label class="choice">
      <span>{label}</span>
      <input type="number" min={minimum} step="1" value={value} onInput={(event) => { onChange(event.currentTarget.value); }} />
    </label>
  );
}
