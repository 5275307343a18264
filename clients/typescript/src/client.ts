import { MemrecallError } from "./errors.js";
import { MemoriesApi } from "./memories.js";
import { MessagesApi, withIds } from "./messages.js";
import { SpacesApi } from "./spaces.js";
import { path, Transport, type Call, type CallOptions, type MemrecallConfig } from "./transport.js";
import type {
  AddFields,
  Added,
  BlockFields,
  FoundMemories,
  InputMessage,
  Messages,
  RecallFields,
  RecallResult,
  RecallStep,
  SearchFields,
  TraceEvent,
} from "./types.js";

/** The memory of one user, or of a space. */
export class Memrecall {
  readonly messages: MessagesApi;
  readonly memories: MemoriesApi;
  readonly spaces: SpacesApi;
  private readonly transport: Transport;

  constructor(config: MemrecallConfig) {
    this.transport = new Transport(config);
    this.messages = new MessagesApi(this.transport);
    this.memories = new MemoriesApi(this.transport);
    this.spaces = new SpacesApi(this.transport);
  }

  /** Return a client with other settings, such as another `userId`. */
  with(changes: Partial<MemrecallConfig>): Memrecall {
    return new Memrecall({ ...this.transport.config, ...changes });
  }

  /** Return a client whose methods read and write a space, as the same user. */
  space(spaceId: string): Memrecall {
    return this.with({ space: spaceId });
  }

  /** Store messages, and remember the facts in them. */
  add(messages: Messages, fields: AddFields = {}, options: CallOptions = {}): Promise<Added> {
    const body = { user_id: this.transport.owner, messages: withIds(asList(messages)), ...fields };
    return this.transport.json("POST", "/v1/memories", { ...options, body, repeatable: true });
  }

  /** Search memories and messages, the best first. */
  search(query: string, fields: SearchFields = {}, options: CallOptions = {}): Promise<FoundMemories> {
    const body = { user_id: this.transport.owner, query, ...fields };
    return this.transport.json("POST", "/v1/memories/search", { ...options, body, repeatable: true });
  }

  /** Find what a text, or the last message of a conversation, refers to.
   *
   * `await` gives the result, `for await` the steps as they happen, and the result last.
   */
  recall(messages: Messages, fields: RecallFields = {}, options: CallOptions = {}): Recall {
    return new Recall(this.transport, recallCall(messages, fields, options));
  }

  /** Recall as a text for a model's prompt: marked as data, and empty if nothing was found. */
  recallBlock(messages: Messages, fields: BlockFields = {}, options: CallOptions = {}): Promise<string> {
    const call = { ...recallCall(messages, fields, options), accept: "text/plain" };
    return this.transport.text("POST", recallPath(this.transport), call);
  }

  /** Send any other request of the HTTP API; set `repeatable` if sending it twice does no harm. */
  request<T = unknown>(method: string, url: string, call: Call = {}): Promise<T> {
    return this.transport.json(method, url, call);
  }
}

/** A recall that starts when it is awaited or iterated over. */
export class Recall implements Promise<RecallResult>, AsyncIterable<RecallStep> {
  readonly [Symbol.toStringTag] = "Recall";
  private result: Promise<RecallResult> | undefined;

  constructor(
    private readonly transport: Transport,
    private readonly call: Call,
  ) {}

  then<A = RecallResult, B = never>(
    onResult?: ((result: RecallResult) => A | PromiseLike<A>) | null,
    onError?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.result ??= this.transport.json("POST", recallPath(this.transport), this.call);
    return this.result.then(onResult, onError);
  }

  catch<B = never>(onError?: ((error: any) => B | PromiseLike<B>) | null): Promise<RecallResult | B> {
    return this.then(null, onError);
  }

  finally(onEnd?: (() => void) | null): Promise<RecallResult> {
    return this.then().finally(onEnd);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<RecallStep> {
    for await (const { event, data } of this.transport.events("POST", recallPath(this.transport), this.call)) {
      if (event === "done") {
        yield { kind: "done", result: JSON.parse(data) as RecallResult };
        return;
      }
      yield JSON.parse(data) as TraceEvent;
    }
    throw new MemrecallError("UNAVAILABLE", "the stream ended before the result");
  }
}

function recallPath({ owner }: Transport): string {
  return path`/v1/users/${owner}/recall`;
}

function recallCall(messages: Messages, fields: BlockFields, options: CallOptions): Call {
  const target = typeof messages === "string" ? { query: messages } : { messages };
  return { ...options, body: { ...target, ...fields }, repeatable: true };
}

function asList(messages: Messages): InputMessage[] {
  const list = Array.isArray(messages) ? messages : [messages];
  return list.map((message) => (typeof message === "string" ? { role: "user", content: message } : message));
}
