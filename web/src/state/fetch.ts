// Payloads for screens: the newest one stays on screen until a newer one is there.
import { useEffect, useRef, useState } from "preact/hooks";

import { Failure, get, query, type Loaded, type Options } from "../api/client";
import type { Views } from "../api/views";
import { following, revision } from "./live";
import { param, run } from "./url";

export { revision } from "./live";

/** Answers that are kept: going back to a screen shows it at once, then what is new. */
const MOST_KEPT = 24;
const kept = new Map<string, unknown>();

function keep(key: string, payload: unknown): void {
  kept.delete(key);
  kept.set(key, payload);
  for (const oldest of kept.keys()) {
    if (kept.size <= MOST_KEPT) break;
    kept.delete(oldest);
  }
}

const from = param("from");
const to = param("to");

/** The range that the reader chose, as options of a view. */
export function range(): Options {
  return { from_ns: from.value, to_ns: to.value };
}

/** One payload of the run on screen. */
export function fetchView<Name extends keyof Views>(
  view: Name,
  options: Options = {},
  signal?: AbortSignal,
): Promise<Views[Name]> {
  return get<Views[Name]>(`/api/views/${view}`, { run: run.value, ...options }, signal);
}

/** A payload of the run on screen, within the chosen range where nothing else is said. */
export function useView<Name extends keyof Views>(
  view: Name,
  options: Options = {},
): Loaded<Views[Name]> {
  return useGet<Views[Name]>(`/api/views/${view}`, { run: run.value, ...range(), ...options });
}

/** A payload of the whole run on screen, whatever range the reader has chosen. */
export function useWholeView<Name extends keyof Views>(view: Name): Loaded<Views[Name]> {
  return useGet<Views[Name]>(`/api/views/${view}`, { run: run.value });
}

/** What the server says at a path; asked again when `version` changes: when the run has grown. */
export function useGet<T>(
  path: string,
  options: Options = {},
  version = following.value ? revision.value : 0,
): Loaded<T> {
  const key = `${path}?${query(options)}`;
  const [state, setState] = useState<Loaded<T> & { key: string }>(() => initial<T>(key));
  const asked = useRef("");
  useEffect(() => {
    const abort = new AbortController();
    if (asked.current !== key) setState(initial<T>(key));
    else setState((before) => ({ ...before, loading: true }));
    asked.current = key;
    get<T>(path, options, abort.signal).then(
      (data) => {
        keep(key, data);
        setState({ key, data, error: null, loading: false });
      },
      (error: unknown) => {
        if (abort.signal.aborted) return;
        const failure = error instanceof Failure ? error : new Failure(String(error), 0);
        // What is on screen stays true of its time; only the first answer can be wanting.
        setState((before) => ({ ...before, error: failure, loading: false }));
      },
    );
    return () => {
      abort.abort();
    };
    // The key says all that `path` and `options` say.
  }, [key, version]);
  return state.key === key ? state : initial<T>(key);
}

function initial<T>(key: string): Loaded<T> & { key: string } {
  const data = (kept.get(key) as T | undefined) ?? null;
  return { key, data, error: null, loading: true };
}
