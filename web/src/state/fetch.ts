// Payloads for screens: the newest one stays on screen until a newer one is there.
import { useEffect, useRef, useState } from "preact/hooks";

import { RequestError, get, query, type Resource, type Options } from "../api/client";
import type { Views } from "../api/views";
import { isLive, revision } from "./live";
import { param, run } from "./url";

export { revision } from "./live";

/** Answers that are kept: going back to a screen shows it at once, then what is new. */
const MAX_CACHED = 24;
const cache = new Map<string, unknown>();

function cachePayload(key: string, payload: unknown): void {
  cache.delete(key);
  cache.set(key, payload);
  for (const oldest of cache.keys()) {
    if (cache.size <= MAX_CACHED) break;
    cache.delete(oldest);
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
): Resource<Views[Name]> {
  return useGet<Views[Name]>(`/api/views/${view}`, { run: run.value, ...range(), ...options });
}

/** A payload of the whole run on screen, whatever range the reader has chosen. */
export function useWholeView<Name extends keyof Views>(view: Name): Resource<Views[Name]> {
  return useGet<Views[Name]>(`/api/views/${view}`, { run: run.value });
}

/** What the server says at a path; asked again when `version` changes: when the run has grown. */
export function useGet<T>(
  path: string,
  options: Options = {},
  version = isLive.value ? revision.value : 0,
): Resource<T> {
  const key = `${path}?${query(options)}`;
  const [state, setState] = useState<Resource<T> & { key: string }>(() => initialState<T>(key));
  const requestedKey = useRef("");
  useEffect(() => {
    const abort = new AbortController();
    if (requestedKey.current !== key) setState(initialState<T>(key));
    else setState((before) => ({ ...before, loading: true }));
    requestedKey.current = key;
    get<T>(path, options, abort.signal).then(
      (data) => {
        cachePayload(key, data);
        setState({ key, data, error: null, loading: false });
      },
      (error: unknown) => {
        if (abort.signal.aborted) return;
        const failure = error instanceof RequestError ? error : new RequestError(String(error), 0);
        // What is on screen stays true of its time; only the first answer can be wanting.
        setState((before) => ({ ...before, error: failure, loading: false }));
      },
    );
    return () => {
      abort.abort();
    };
    // The key says all that `path` and `options` say.
  }, [key, version]);
  return state.key === key ? state : initialState<T>(key);
}

function initialState<T>(key: string): Resource<T> & { key: string } {
  const data = (cache.get(key) as T | undefined) ?? null;
  return { key, data, error: null, loading: true };
}
