// Options of a screen that are in the URL.
import { param, setParams } from "../state/url";

/** One of several values; the default, or else the first, if the URL has none or an unknown one. */
export function useOption<Value extends string>(
  name: string,
  values: readonly Value[],
  fallback = values[0],
): [Value, (value: Value) => void] {
  const text = param(name).value;
  const value = values.find((candidate) => candidate === text) ?? fallback;
  if (value === undefined) throw new Error(`no values for ${name}`);
  const setValue = (next: Value): void => {
    setParams({ [name]: next === fallback ? null : next }, { replace: true });
  };
  return [value, setValue];
}

/** Any text; empty if the URL has none. */
export function useText(name: string): [string, (value: string) => void] {
  const value = param(name).value ?? "";
  const setValue = (next: string): void => {
    setParams({ [name]: next === "" ? null : next }, { replace: true });
  };
  return [value, setValue];
}

/** Several texts, joined by a character that names do not contain. */
export function useTexts(name: string): [string[], (values: string[]) => void] {
  const [text, setText] = useText(name);
  return [text === "" ? [] : text.split(SEPARATOR), (values) => { setText(values.join(SEPARATOR)); }];
}

const SEPARATOR = "\u001f";

/** Add an item, or remove it if it is present. */
export function toggleItem(items: readonly string[], item: string): string[] {
  return items.includes(item) ? items.filter((candidate) => candidate !== item) : [...items, item];
}
