// HTTP requests to the server and the errors that a screen shows.

/** A failed request, with one sentence for the reader. */
export class RequestError extends Error {
  constructor(
    message: string,
    /** HTTP status; 0 when the server could not be reached. */
    readonly status: number,
  ) {
    super(message);
  }
}

export type Options = Record<string, string | number | boolean | null | undefined>;

/** Build a query string from the options that are set. */
export function query(options: Options): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(options)) {
    if (value !== null && value !== undefined && value !== "") search.set(name, String(value));
  }
  return search.toString();
}

async function requestJson<T>(request: Promise<Response>): Promise<T> {
  let response: Response;
  try {
    response = await request;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new RequestError("The server does not respond. Is `stepscope ui` still running?", 0);
  }
  if (response.ok) return (await response.json()) as T;
  if (response.status === 401) window.location.reload(); // shows the page that asks for the token
  throw new RequestError(await errorMessage(response), response.status);
}

async function errorMessage(response: Response): Promise<string> {
  try {
    const { error } = (await response.json()) as { error?: unknown };
    if (typeof error === "string") return error;
  } catch {
    // The response is not JSON from this server: the status is all there is to report.
  }
  return `The server responded with status ${response.status}.`;
}

let pendingCount = 0;

/** Number of requests in flight. */
export function countPendingRequests(): number {
  return pendingCount;
}

export async function get<T>(path: string, options: Options = {}, signal?: AbortSignal): Promise<T> {
  const search = query(options);
  const address = search === "" ? path : `${path}?${search}`;
  pendingCount += 1;
  try {
    return await requestJson<T>(fetch(address, signal === undefined ? {} : { signal }));
  } finally {
    pendingCount -= 1;
  }
}

export function post<T>(path: string, body: unknown): Promise<T> {
  return requestJson<T>(
    fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    }),
  );
}

/** Send the content of a file. */
export function postFile<T>(path: string, options: Options, file: Blob): Promise<T> {
  return requestJson<T>(
    fetch(`${path}?${query(options)}`, {
      method: "POST",
      headers: { "content-type": "application/octet-stream" },
      body: file,
    }),
  );
}

/** State of a payload that a screen requests. */
export interface Resource<T> {
  data: T | null;
  error: RequestError | null;
  /** A request is in flight; `data` is the previous payload. */
  loading: boolean;
}
