import { errorFromBody, errorFromResponse, MemrecallError } from "./errors.js";

export interface MemrecallConfig {
  /** Where `memrecall serve` listens, such as `http://127.0.0.1:8765`. */
  url: string;
  /** The user whose data is read and written; set by your code, never by a model. */
  userId: string;
  /** A key of `memrecall keys create`; a local service without keys needs none. */
  key?: string;
  /** Read and write one project only. */
  project?: string;
  /** Spaces that reads cover in addition to the user's own data. */
  spaces?: string[];
  /** Read and write this space in place of the user's own data, as the user; see `Memrecall.space`. */
  space?: string;
  /** Milliseconds for one call with its retries; by default the service's deadline alone counts. */
  timeout?: number;
  /** How often a request that is safe to repeat is sent again; 2 by default. */
  maxRetries?: number;
  fetch?: typeof globalThis.fetch;
}

export interface CallOptions {
  signal?: AbortSignal;
  /** Milliseconds, in place of the client's `timeout`. */
  timeout?: number;
  /** In place of the client's `spaces`. */
  spaces?: string[];
}

export interface Call extends CallOptions {
  query?: Record<string, unknown>;
  body?: unknown;
  accept?: string;
  /** Whether sending it twice does the same as sending it once; by default of GET only. */
  repeatable?: boolean;
}

const RETRIED = new Set([408, 429, 503, 504]);
const REFUSED = 429; // nothing was done, so that any request can be sent again
const DEFAULT_RETRIES = 2;
const FIRST_DELAY = 250;
const LONGEST_DELAY = 10_000;
const LONGEST_TIMEOUT = 2 ** 31 - 1; // of timers; longer ones would end at once
const MOST_SECONDS = 9_999; // what the deadline header can say

/** Sends requests: headers, deadlines, retries and errors. */
export class Transport {
  /** The `user_id` of requests: of the user, or of the space that the client is bound to. */
  readonly owner: string;
  private readonly base: string;

  constructor(readonly config: MemrecallConfig) {
    if (!config.url || !config.userId) {
      throw new TypeError("new Memrecall({ url, userId }) needs both; pass key unless the service has none");
    }
    this.base = config.url.replace(/\/+$/, "");
    this.owner = config.space === undefined ? config.userId : `space:${config.space}`;
  }

  async json<T>(method: string, path: string, call: Call = {}): Promise<T> {
    const text = await this.text(method, path, call);
    return JSON.parse(text) as T;
  }

  async text(method: string, path: string, call: Call = {}): Promise<string> {
    return this.send(method, path, call, (response) => response.text());
  }

  /** Yield the events of a stream; leaving the loop closes the connection, which cancels the work. */
  async *events(method: string, path: string, call: Call = {}): AsyncGenerator<ServerEvent> {
    const streamed = { ...call, accept: "text/event-stream" };
    const { body, deadline } = await this.send(method, path, streamed, async ({ body }, deadline) => ({
      body,
      deadline,
    }));
    try {
      for await (const event of readEvents(body)) {
        if (event.event === "error") throw errorFromBody(event.data, 0);
        yield event;
      }
    } catch (error) {
      throw this.describe(error, deadline);
    }
  }

  private async send<T>(
    method: string,
    path: string,
    call: Call,
    read: (response: Response, deadline: Deadline) => Promise<T>,
  ): Promise<T> {
    const deadline = new Deadline(call.signal, call.timeout ?? this.config.timeout);
    const retries = this.config.maxRetries ?? DEFAULT_RETRIES;
    const repeatable = call.repeatable ?? method === "GET";
    for (let attempt = 0; ; attempt++) {
      try {
        return await this.attempt(method, path, call, deadline, read);
      } catch (error) {
        const delay = retryDelay(error, attempt);
        if (attempt >= retries || !isRetried(error, repeatable) || !deadline.allows(delay)) throw error;
        await deadline.sleep(delay);
      }
    }
  }

  private async attempt<T>(
    method: string,
    path: string,
    call: Call,
    deadline: Deadline,
    read: (response: Response, deadline: Deadline) => Promise<T>,
  ): Promise<T> {
    const { fetch = globalThis.fetch } = this.config;
    try {
      const response = await fetch(this.base + path + queryString(call.query), {
        method,
        headers: this.headers(call, deadline),
        body: call.body === undefined ? undefined : JSON.stringify(call.body),
        signal: deadline.signal(),
      });
      if (!response.ok) throw await errorFromResponse(response);
      return await read(response, deadline);
    } catch (error) {
      throw this.describe(error, deadline);
    }
  }

  /** Return the error to throw: the caller's reason to abort, or one that says what happened. */
  private describe(error: unknown, deadline: Deadline): unknown {
    if (error instanceof MemrecallError) return error;
    const lost = new MemrecallError("UNAVAILABLE", `no answer from ${this.base}`, { cause: error });
    return deadline.explain(error) ?? lost;
  }

  private headers(call: Call, deadline: Deadline): Record<string, string> {
    const { key, userId, project } = this.config;
    const spaces = call.spaces ?? this.config.spaces ?? [];
    const seconds = deadline.seconds();
    return {
      Accept: call.accept ?? "application/json",
      "X-Memrecall-User": encodeURIComponent(userId),
      ...(key ? { Authorization: `Bearer ${key}` } : {}),
      ...(project ? { "X-Memrecall-Project": encodeURIComponent(project) } : {}),
      ...(spaces.length ? { "X-Memrecall-Spaces": spaces.map(encodeURIComponent).join(",") } : {}),
      ...(seconds === undefined ? {} : { "X-Memrecall-Deadline": seconds.toFixed(3) }),
      ...(call.body === undefined ? {} : { "Content-Type": "application/json" }),
    };
  }
}

/** What is left of a call's time, and the signal that ends it. */
class Deadline {
  private readonly end: number | undefined;
  private readonly timer: AbortSignal | undefined;

  constructor(
    private readonly caller: AbortSignal | undefined,
    private readonly timeout: number | undefined,
  ) {
    if (timeout !== undefined && !(timeout > 0 && timeout <= LONGEST_TIMEOUT)) {
      throw new TypeError(`timeout is ${timeout}; use milliseconds above 0 and at most ${LONGEST_TIMEOUT}`);
    }
    this.end = timeout === undefined ? undefined : Date.now() + timeout;
    this.timer = timeout === undefined ? undefined : AbortSignal.timeout(Math.ceil(timeout));
    caller?.throwIfAborted();
  }

  signal(): AbortSignal | undefined {
    const signals = [this.caller, this.timer].filter((signal) => signal !== undefined);
    return signals.length > 1 ? AbortSignal.any(signals) : signals[0];
  }

  seconds(): number | undefined {
    return this.end === undefined ? undefined : Math.min(Math.max(this.end - Date.now(), 1) / 1000, MOST_SECONDS);
  }

  allows(delay: number): boolean {
    return this.end === undefined || Date.now() + delay < this.end;
  }

  /** Return the error to throw if the caller aborted, or the time is over. */
  explain(error: unknown): unknown {
    if (this.caller?.aborted) return this.caller.reason;
    if (this.timer?.aborted) {
      return new MemrecallError("DEADLINE_EXCEEDED", `no answer within ${this.timeout} ms`, { cause: error });
    }
    return undefined;
  }

  sleep(delay: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const abort = () => {
        clearTimeout(timer);
        reject(this.caller?.reason);
      };
      const timer = setTimeout(() => {
        this.caller?.removeEventListener("abort", abort);
        resolve();
      }, delay);
      this.caller?.addEventListener("abort", abort, { once: true });
    });
  }
}

export interface ServerEvent {
  event: string;
  data: string;
}

async function* readEvents(body: ReadableStream<Uint8Array> | null): AsyncGenerator<ServerEvent> {
  if (body === null) return;
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split(/\r?\n\r?\n/);
      rest = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = parseEvent(block);
        if (event) yield event;
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function parseEvent(block: string): ServerEvent | undefined {
  const fields = { event: "message", data: [] as string[] };
  for (const line of block.split(/\r?\n/)) {
    const [, name, value = ""] = /^(event|data): ?(.*)$/.exec(line) ?? [];
    if (name === "event") fields.event = value;
    if (name === "data") fields.data.push(value);
  }
  return fields.data.length ? { event: fields.event, data: fields.data.join("\n") } : undefined;
}

function isRetried(error: unknown, repeatable: boolean): boolean {
  if (!(error instanceof MemrecallError)) return false;
  if (error.status === REFUSED) return true;
  const isLost = error.status === 0 && error.code === "UNAVAILABLE";
  return repeatable && (isLost || RETRIED.has(error.status));
}

function retryDelay(error: unknown, attempt: number): number {
  const asked = error instanceof MemrecallError ? error.retryAfter : undefined;
  const growing = FIRST_DELAY * 2 ** attempt * (0.5 + Math.random());
  return Math.min(asked === undefined ? growing : asked * 1000, LONGEST_DELAY);
}

function queryString(query: Record<string, unknown> = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null) continue;
    parameters.set(name, typeof value === "object" ? JSON.stringify(value) : String(value));
  }
  const text = parameters.toString();
  return text && `?${text}`;
}

/** Return a path with its ids encoded: ``path`/v1/jobs/${id}` ``. */
export function path(texts: TemplateStringsArray, ...ids: string[]): string {
  return String.raw({ raw: texts }, ...ids.map(encodeURIComponent));
}
