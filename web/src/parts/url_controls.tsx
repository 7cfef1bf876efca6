// Controls whose values are in the URL.
import type { JSX } from "preact";

import { count } from "../base/quantities";
import { dateTime, sentence } from "../base/text";
import { Select, type Choice } from "../widgets/select";
import { useOption, useText } from "./url_options";

type Selection<Value extends string> = [Value, JSX.Element | null, (value: Value) => void];

/** Return the selected value, its control, and its setter; the control is null if there is nothing to select. */
export function useSelect<Value extends string>(name: string, label: string, choices: readonly Choice<Value>[], fallback?: Value): Selection<Value> {
  const keys = choices.map((choice) => (typeof choice === "string" ? choice : choice[0]));
  const [value, setValue] = useOption(name, keys.length === 0 ? ["" as Value] : keys, fallback);
  const control = keys.length < 2 ? null : <Select key={name} label={label} value={value} choices={choices} onChange={setValue} />;
  return [value, control, setValue];
}

interface TextProps {
  placeholder?: string;
  /** Explanation of the format. */
  help?: string;
  testid?: string;
}

/** Return a text and its control, which changes it when the user leaves it or presses Enter. */
export function useTextInput(name: string, label: string, { placeholder, help, testid }: TextProps = {}): [string, JSX.Element] {
  const [text, setText] = useText(name);
  const control = (
    <label class="choice" key={name}>
      <span>{label}</span>
      <input
        type="text"
        placeholder={placeholder}
        value={text}
        title={help}
        onChange={(event) => { setText(event.currentTarget.value.trim()); }}
        data-testid={testid}
      />
    </label>
  );
  return [text, control];
}

/** Return a minute in milliseconds since 1970, and its control; null if it is not set. The URL has UTC, the control the reader's time zone. */
export function useMinute(name: string, label: string): [number | null, JSX.Element] {
  const [text, setText] = useText(name);
  const parsed_ms = Date.parse(text);
  const time_ms = Number.isNaN(parsed_ms) ? null : parsed_ms;
  const control = (
    <label class="choice" key={name}>
      <span>{label}</span>
      <input
        type="datetime-local"
        value={time_ms === null ? "" : dateTime(time_ms).replace(" ", "T")}
        onChange={(event) => {
          const { value } = event.currentTarget;
          setText(value === "" ? "" : `${new Date(value).toISOString().slice(0, 16)}Z`);
        }}
      />
    </label>
  );
  return [time_ms, control];
}

/** Select whether device work launched before the trace started is counted. */
export function useCarryOver() {
  return useSelect("carry_over", "Carry-over", [["keep", "included"], ["drop", "excluded"]] as const);
}

/** Select which kernels count as communication. */
export function useCommunication() {
  return useSelect("communication", "Communication", [["wide", "wide definition"], ["narrow", "narrow definition"]] as const);
}

const ROW_LIMITS = ["50", "500", "5000", "0"].map((limit) => [limit, limit === "0" ? "all" : `top ${count(Number(limit))}`] as const);
const DEFAULT_ROW_LIMIT = "500";

/** Select a limit on the rows that are requested. */
export function useRowLimit() {
  return useSelect("top", "Rows", ROW_LIMITS, DEFAULT_ROW_LIMIT);
}

/** State which kernels count as communication. */
export function CommunicationDefinition({ text }: { text: string }) {
  return <p class="muted definition">{sentence(`communication: ${text}`)}</p>;
}

/** Note below a table on rows that were not requested. */
export function omittedRows(shownCount: number, totalCount: number): string | null {
  return shownCount < totalCount ? `top rows of ${count(totalCount)}` : null;
}
