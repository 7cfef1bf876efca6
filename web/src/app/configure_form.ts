// Fields of the dialog that changes the recording of a running job, and the request for them.
import type { ConfigureRequest } from "../api/server";
import type { ConfigurationView } from "../api/views";

/** Fields of the form. Numbers are texts: an empty one is not set. */
export interface Form {
  intervalNs: string;
  automatic: boolean;
  removesSchedules: boolean;
  firstStep: string;
  stepCount: string;
  interval: string;
  /** Rules to evaluate from now on, or no longer: the opposite of the present. */
  toggledRules: ReadonlySet<string>;
  /** `Name.parameter=value`, separated by spaces or commas. */
  parameters: string;
}

/** The present configuration, with what the user changed: the present may itself change under an open form. */
export function currentForm(payload: ConfigurationView, changes: Partial<Form>): Form {
  return {
    intervalNs: String(payload.interval_ns),
    automatic: payload.automatic_windows,
    removesSchedules: false,
    firstStep: "",
    stepCount: "10",
    interval: "",
    toggledRules: new Set(),
    parameters: "",
    ...changes,
  };
}

/** Request for what differs from the present configuration. */
export function configureRequest(id: string, payload: ConfigurationView, form: Form): ConfigureRequest {
  return {
    run: id,
    interval_ns: form.intervalNs === String(payload.interval_ns) ? null : Number(form.intervalNs),
    automatic: form.automatic === payload.automatic_windows ? null : form.automatic,
    clear_schedules: form.removesSchedules,
    schedules: form.firstStep === "" ? [] : [{
      first_step: Number(form.firstStep),
      step_count: Number(form.stepCount),
      interval: form.interval === "" ? null : Number(form.interval),
    }],
    rules: payload.other_rules.filter((name) => form.toggledRules.has(name)),
    without_rules: payload.rules.filter((name) => form.toggledRules.has(name)),
    assignments: form.parameters.split(/[\s,]+/).filter((text) => text !== ""),
  };
}
