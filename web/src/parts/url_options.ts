// Choices of a screen that live in the address.
import { param, setParams } from "../state/url";

/** One of several values; the first where the address says nothing, or nothing known. */
export function useOption<Value extends string>(
  name: string,
  values: readonly Value[],
): [Value, (value: Value) => void] {
  const text = param(name).value;
  const [first] = values;
  const value = values.find((candidate) => candidate === text) ?? first;
  if (value === undefined) throw new Error(`no choice for ${name}`);
  const choose = (next: Value): void => {
    setParams({ [name]: next === first ? null : next }, { replace: true });
  };
  return [value, choose];
}

/** Any text; empty where the address says nothing. */
export function useText(name: string): [string, (value: string) => void] {
  const value = param(name).value ?? "";
  const change = (next: string): void => {
    setParams({ [name]: next === "" ? null : next }, { replace: true });
  };
  return [value, change];
}

/** Several texts, told apart by a character that names do not have. */
export function useTexts(name: string): [string[], (values: string[]) => void] {
  const [text, change] = useText(name);
  return [text === "" ? [] : text.split(SEPARATOR), (values) => { change(values.join(SEPARATOR)); }];
}

const SEPARATOR = "\u001f";
