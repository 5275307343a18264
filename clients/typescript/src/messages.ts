import { path, type Call, type CallOptions, type Transport } from "./transport.js";
import type {
  Changed,
  ChatMessage,
  DeletedMessage,
  LexicalPage,
  ListMessagesFields,
  MeaningSearchFields,
  MessagePage,
  NearMessages,
  Neighbors,
  NeighborsFields,
  NewMessage,
  PurgedMemory,
  WordSearchFields,
  WriteReceipt,
} from "./types.js";

/** The fields by which a message is the same when it is sent again; `id` and `timestamp` as in OpenAI's API. */
interface Identified {
  message_id?: unknown;
  id?: unknown;
  ts?: unknown;
  timestamp?: unknown;
}

/** Give each message an id and a time, so that sending the request again stores nothing twice. */
export function withIds<T extends Identified>(messages: T[]): T[] {
  const ts = new Date().toISOString();
  return messages.map((message) => ({
    ...message,
    message_id: message.message_id || message.id || newId(),
    ts: message.ts || message.timestamp || ts,
  }));
}

// Unlike this, randomUUID is missing in pages that a browser got over plain HTTP.
function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The messages of the user: what was said, by whom, when. */
export class MessagesApi {
  private readonly root: string;

  constructor(private readonly transport: Transport) {
    this.root = path`/v1/users/${transport.owner}/messages`;
  }

  /** Store messages, all or none. */
  add(messages: NewMessage[], options: CallOptions = {}): Promise<WriteReceipt> {
    const body = { messages: withIds(messages) };
    return this.transport.json("POST", this.root, { ...options, body, repeatable: true });
  }

  /** Read a page of messages, by default the latest first. */
  list(fields: ListMessagesFields = {}, options: CallOptions = {}): Promise<MessagePage> {
    return this.transport.json("GET", this.root, { ...options, query: fields });
  }

  /** Yield all messages, page after page. */
  async *all(fields: ListMessagesFields = {}, options: CallOptions = {}): AsyncGenerator<ChatMessage> {
    for (let cursor = fields.cursor; ; ) {
      const page = await this.list({ ...fields, cursor }, options);
      yield* page.items;
      if (page.next_cursor === null) return;
      cursor = page.next_cursor;
    }
  }

  get(messageId: string, options: CallOptions = {}): Promise<ChatMessage> {
    return this.transport.json("GET", this.root + path`/${messageId}`, options);
  }

  /** Read a message with the messages before and after it. */
  neighbors(messageId: string, fields: NeighborsFields = {}, options: CallOptions = {}): Promise<Neighbors> {
    return this.transport.json("GET", this.root + path`/${messageId}/neighbors`, { ...options, query: fields });
  }

  /** Hide a message and the memories derived from it alone, until `undo`. */
  delete(messageId: string, options: CallOptions = {}): Promise<DeletedMessage> {
    return this.transport.json("DELETE", this.root + path`/${messageId}`, { ...options, repeatable: true });
  }

  /** Take the deletion of a message back. */
  undo(messageId: string, options: CallOptions = {}): Promise<Changed> {
    return this.transport.json("POST", path`/v1/memories/${messageId}/undo`, this.owned(options));
  }

  /** Erase a message permanently, with what quotes it. */
  purge(messageId: string, options: CallOptions = {}): Promise<PurgedMemory> {
    return this.transport.json("POST", path`/v1/memories/${messageId}/purge`, this.owned(options));
  }

  /** Search by words: `"phrases"`, AND, OR, NOT, -word, (groups), prefix*. */
  searchWords(query: string, fields: WordSearchFields = {}, options: CallOptions = {}): Promise<LexicalPage> {
    return this.search("lexical", { query_text: query, ...fields }, options);
  }

  /** Search by meaning, for a text or an embedding. */
  searchMeaning(
    query: string | number[],
    fields: MeaningSearchFields = {},
    options: CallOptions = {},
  ): Promise<NearMessages> {
    const target = typeof query === "string" ? { query_text: query } : { query_embedding: query };
    return this.search("semantic", { ...target, ...fields }, options);
  }

  private owned(options: CallOptions): Call {
    return { ...options, query: { user_id: this.transport.owner } };
  }

  private search<T>(kind: string, fields: object, options: CallOptions): Promise<T> {
    const body = { user_id: this.transport.owner, ...fields };
    return this.transport.json("POST", `/v1/messages/${kind}_search`, { ...options, body, repeatable: true });
  }
}
