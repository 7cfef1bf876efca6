// What the server is asked, and what it says when it cannot answer.

/** An answer that is no payload: one sentence for the reader. */
export class RequestError extends Error {
  constructor(
    message: string,
    /** HTTP status; 0 where no answer came. */
    readonly status: number,
  ) {
    super(message);
  }
}

export type Options = Record<string, string | number | boolean | null | undefined>;

/** A query of the options that are given. */
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
    throw new RequestError("The server does not answer. Is `stepscope ui` still running?", 0);
  }
  if (response.ok) return (await response.json()) as T;
  if (response.status === 401) window.location.reload(); // to the page that asks for the token
  throw new RequestError(await errorMessage(response), response.status);
}

async function errorMessage(response: Response): Promise<string> {
  try {
    const { error } = (await response.json()) as { error?: unknown };
    if (typeof error === "string") return error;
  } catch {
    // Not of our server, or cut off: the status is all there is to say.
  }
  return `The server answered with status ${response.status}.`;
}

let pendingCount = 0;

/** How many answers are on their way. */
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

/** A payload on its way to the screen. */
export interface Resource<T> {
  data: T | null;
  error: RequestError | null;
  /** An answer is on its way; `data` is what was there before. */
  loading: boolean;
}
