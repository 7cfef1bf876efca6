// Choices of the reader that outlive the page: kept by the browser, where it allows that.
import { effect, signal, type Signal } from "@preact/signals";

const PREFIX = "stepscope.";

function read(name: string): string | null {
  try {
    return window.localStorage.getItem(PREFIX + name);
  } catch {
    return null; // pages of files, and browsers that refuse to store
  }
}

function write(name: string, text: string | null): void {
  try {
    if (text === null) window.localStorage.removeItem(PREFIX + name);
    else window.localStorage.setItem(PREFIX + name, text);
  } catch {
    // The choice lasts as long as the page.
  }
}

/** One of several values that is remembered; the first until the reader chooses. */
export function remembered<Value extends string>(name: string, values: readonly [Value, ...Value[]]): Signal<Value> {
  const text = read(name);
  const choice = signal(values.find((value) => value === text) ?? values[0]);
  effect(() => { write(name, choice.value === values[0] ? null : choice.value); });
  return choice;
}
