// Payloads of screens: the last payload stays on screen until a newer one arrives.
import { useEffect, useRef, useState } from "preact/hooks";

import { RequestError, get, query, type Resource, type Options } from "../base/client";
import type { Views } from "../api/views";
import { revision } from "./live";
import { param, run } from "./url";

export { revision } from "./live";

/** Upper bound of cached payloads: returning to a screen shows it at once, then updates it. */
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

function cached(key: string): unknown {
  return cache.get(key) ?? null;
}

const from = param("from");
const to = param("to");

/** Selected range as view options. */
export function range(): Options {
  return { from_ns: from.value, to_ns: to.value };
}

/** Request one payload of the current run. */
export function fetchView<Name extends keyof Views>(
  view: Name,
  options: Options = {},
  signal?: AbortSignal,
): Promise<Views[Name]> {
  return get<Views[Name]>(`/api/views/${view}`, { run: run.value, ...options }, signal);
}

/** Payload of the current run, within the selected range unless options override it. */
export function useView<Name extends keyof Views>(
  view: Name,
  options: Options = {},
): Resource<Views[Name]> {
  return useGet<Views[Name]>(`/api/views/${view}`, { run: run.value, ...range(), ...options });
}

/** Payload of the whole current run, regardless of the selected range. */
export function useWholeView<Name extends keyof Views>(view: Name): Resource<Views[Name]> {
  return useGet<Views[Name]>(`/api/views/${view}`, { run: run.value });
}

/** Response of the server at a path; requested again when `version` changes, as when the run has
 * grown. */
export function useGet<T>(
  path: string,
  options: Options = {},
  version = revision.value,
): Resource<T> {
  return useRequest<T>(`${path}?${query(options)}`, version, (signal) => get<T>(path, options, signal));
}

/** Result of a request, which gets the last result of its key; made again when `version` changes. */
export function useRequest<T>(
  key: string,
  version: number,
  request: (signal: AbortSignal, last: T | null) => Promise<T>,
): Resource<T> {
  const [state, setState] = useState<Resource<T> & { key: string }>(() => initialState<T>(key));
  const requestedKey = useRef("");
  useEffect(() => {
    const abort = new AbortController();
    if (requestedKey.current !== key) setState(initialState<T>(key));
    else setState((before) => ({ ...before, loading: true }));
    requestedKey.current = key;
    request(abort.signal, cached(key) as T | null).then(
      (data) => {
        cachePayload(key, data);
        setState({ key, data, error: null, loading: false });
      },
      (error: unknown) => {
        if (abort.signal.aborted) return;
        const failure = error instanceof RequestError ? error : new RequestError(String(error), 0);
        // A payload on screen stays valid after an error; only the first request can leave it
        // empty.
        setState((before) => ({ ...before, error: failure, loading: false }));
      },
    );
    return () => {
      abort.abort();
    };
    // The key identifies the request.
  }, [key, version]);
  return state.key === key ? state : initialState<T>(key);
}

function initialState<T>(key: string): Resource<T> & { key: string } {
  return { key, data: cached(key) as T | null, error: null, loading: true };
}
