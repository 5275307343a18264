import type { AccessReason, Viewers } from "./spaces.js";
import { path, type Call, type CallOptions, type Transport } from "./transport.js";
import type {
  Changed,
  DeleteAllFields,
  DeletedMemories,
  ExtractFields,
  Extraction,
  ExtractionRun,
  HistoryStep,
  Job,
  ListMemoriesFields,
  MemoryItem,
  MemoryPage,
  MessageItem,
  PurgedMemory,
  UndoneExtraction,
  UpdatedMemory,
  UpdateFields,
} from "./types.js";

/** The memories of the user, or of a space: what was remembered. Changes that cannot be repeated are sent once. */
export class MemoriesApi {
  constructor(private readonly transport: Transport) {}

  /** Read a page of memories, the latest first. */
  list(fields: ListMemoriesFields = {}, options: CallOptions = {}): Promise<MemoryPage> {
    return this.transport.json("GET", "/v1/memories", this.owned(options, fields));
  }

  /** Yield all memories, page after page; with `kinds`, messages too. */
  async *all(fields: ListMemoriesFields = {}, options: CallOptions = {}): AsyncGenerator<MemoryItem | MessageItem> {
    for (let cursor = fields.cursor; ; ) {
      const page = await this.list({ ...fields, cursor }, options);
      yield* page.results;
      if (page.next_cursor === null) return;
      cursor = page.next_cursor;
    }
  }

  /** Read a memory, or a message that a search returned. */
  get(memoryId: string, options: CallOptions = {}): Promise<MemoryItem | MessageItem> {
    return this.transport.json("GET", path`/v1/memories/${memoryId}`, this.owned(options));
  }

  /** Change fields; with `unchanged_since`, only if nobody changed the memory since then. */
  update(memoryId: string, fields: UpdateFields, options: CallOptions = {}): Promise<UpdatedMemory> {
    return this.transport.json("PATCH", path`/v1/memories/${memoryId}`, { ...this.owned(options), body: fields });
  }

  /** Hide a memory and the messages that it comes from, or a message, until `undo`; `sources: false` keeps the messages. */
  delete(memoryId: string, fields: { sources?: boolean } = {}, options: CallOptions = {}): Promise<Changed> {
    return this.transport.json("DELETE", path`/v1/memories/${memoryId}`, this.owned(options, fields));
  }

  /** Hide all memories and messages that match; `dry_run` counts them. */
  deleteAll(fields: DeleteAllFields = {}, options: CallOptions = {}): Promise<DeletedMemories> {
    return this.transport.json("DELETE", "/v1/memories", { ...this.owned(options, fields), repeatable: true });
  }

  /** Undo the last change of a memory, or the deletion of a message. */
  undo(memoryId: string, fields: { unchanged_since?: string } = {}, options: CallOptions = {}): Promise<Changed> {
    return this.transport.json("POST", path`/v1/memories/${memoryId}/undo`, this.owned(options, fields));
  }

  /** Erase a memory and the messages that it comes from permanently, or a message. */
  purge(memoryId: string, fields: { sources?: boolean } = {}, options: CallOptions = {}): Promise<PurgedMemory> {
    return this.transport.json("POST", path`/v1/memories/${memoryId}/purge`, this.owned(options, fields));
  }

  /** Read the changes of a memory, the oldest first. */
  history(memoryId: string, options: CallOptions = {}): Promise<HistoryStep[]> {
    return this.results(path`/v1/memories/${memoryId}/history`, options);
  }

  /** Read who can read a memory or message: the members of its space, or the keys of its user. */
  whoCanSee(memoryId: string, options: CallOptions = {}): Promise<Viewers> {
    return this.transport.json("GET", path`/v1/memories/${memoryId}/who_can_see`, this.owned(options));
  }

  /** Read why the user can read a memory or message, or each item of a recall, by its trace id. */
  whySeen(memoryId: string, options: CallOptions = {}): Promise<AccessReason[]> {
    return this.results(path`/v1/memories/${memoryId}/why_seen`, options);
  }

  /** Let the model read the stored messages that none has read, in a job; `dry_run` counts them. */
  extract(fields: ExtractFields = {}, options: CallOptions = {}): Promise<Extraction> {
    const body = { user_id: this.transport.owner, ...fields };
    return this.transport.json("POST", "/v1/memories/extract", { ...options, body });
  }

  /** List the extractions that were not undone, the latest first. */
  extractions(options: CallOptions = {}): Promise<ExtractionRun[]> {
    return this.results("/v1/extractions", options);
  }

  /** Take back what an extraction has changed; its messages become unread. */
  undoExtraction(run: string, options: CallOptions = {}): Promise<UndoneExtraction> {
    return this.transport.json("POST", path`/v1/extractions/${run}/undo`, this.owned(options));
  }

  /** Read the state of an add or an extraction in the background. */
  job(jobId: string, options: CallOptions = {}): Promise<Job> {
    return this.transport.json("GET", path`/v1/jobs/${jobId}`, this.owned(options));
  }

  /** List the background work of the last day. */
  jobs(options: CallOptions = {}): Promise<Job[]> {
    return this.results("/v1/jobs", options);
  }

  private owned(options: CallOptions, fields: object = {}): Call {
    return { ...options, query: { user_id: this.transport.owner, ...fields } };
  }

  private async results<Item>(address: string, options: CallOptions): Promise<Item[]> {
    return (await this.transport.json<{ results: Item[] }>("GET", address, this.owned(options))).results;
  }
}
