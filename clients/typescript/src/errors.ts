import type { components } from "./schema.js";

export type ErrorCode = components["schemas"]["ErrorDetail"]["code"];

const HINTS: Record<string, string> = {
  INVALID_ARGUMENT: "Change the value that details.fields names; sending it again does not help.",
  UNAUTHENTICATED: "Pass a valid key: `memrecall keys create --user USER` prints one.",
  PERMISSION_DENIED: "Use a key that may do this; `memrecall keys create --help` lists permissions.",
  NOT_FOUND: "Check the id, and that the key gives access to this user.",
  CONFLICT: "Read it again, then decide; details.reason says what it conflicts with.",
  RESOURCE_EXHAUSTED: "Wait for retryAfter seconds, or send fewer requests at once.",
  UNAVAILABLE: "Check that `memrecall serve` runs at this url, then try again.",
  DEADLINE_EXCEEDED: "Allow more time with `timeout`; if details.outcome is `continues`, repeat it with the same ids.",
  INTERNAL: "Look for requestId in the log of the service, and report it.",
};

export interface ErrorFields {
  status?: number;
  details?: Record<string, unknown>;
  requestId?: string | null;
  retryAfter?: number;
  cause?: unknown;
}

/** An error of the service, or of the way to it: then `status` is 0. */
export class MemrecallError extends Error {
  override readonly name = "MemrecallError";
  readonly status: number;
  readonly details: Record<string, unknown>;
  readonly requestId: string | null;
  /** Seconds after which the request may succeed, if the service says so. */
  readonly retryAfter: number | undefined;

  constructor(
    readonly code: ErrorCode,
    message: string,
    { status = 0, details = {}, requestId = null, retryAfter, cause }: ErrorFields = {},
  ) {
    super(message, { cause });
    this.status = status;
    this.details = details;
    this.requestId = requestId;
    this.retryAfter = retryAfter;
  }

  /** What to do about it. */
  get hint(): string {
    return HINTS[this.code] ?? "";
  }
}

/** Return the error that a response stands for; a proxy's may not be JSON. */
export async function errorFromResponse(response: Response): Promise<MemrecallError> {
  const text = await response.text().catch(() => "");
  const retryAfter = Number(response.headers.get("retry-after") ?? NaN);
  return errorFromBody(text, response.status, {
    requestId: response.headers.get("x-request-id"),
    retryAfter: Number.isFinite(retryAfter) ? retryAfter : undefined,
  });
}

export function errorFromBody(text: string, status: number, fields: ErrorFields = {}): MemrecallError {
  let error: Partial<components["schemas"]["ErrorDetail"]> = {};
  try {
    error = (JSON.parse(text) as components["schemas"]["ErrorBody"]).error ?? {};
  } catch {
    error = { message: text.slice(0, 200) };
  }
  const code = error.code ?? (status >= 500 ? "UNAVAILABLE" : "INVALID_ARGUMENT");
  return new MemrecallError(code, error.message || `HTTP status ${status}`, {
    ...fields,
    status,
    details: error.details ?? {},
  });
}
