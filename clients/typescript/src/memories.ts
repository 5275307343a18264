import { path, type CallOptions, type Transport } from "./transport.js";
import type {
  Changed,
  DeleteAllFields,
  DeletedMemories,
  HistoryStep,
  Job,
  ListMemoriesFields,
  MemoryItem,
  MemoryPage,
  MessageItem,
  PurgedMemory,
  UpdatedMemory,
  UpdateFields,
} from "./types.js";

/** The memories of the user: what was remembered. Changes that cannot be repeated are sent once. */
export class MemoriesApi {
  constructor(private readonly transport: Transport) {}

  /** Read a page of memories, the latest first. */
  list(fields: ListMemoriesFields = {}, options: CallOptions = {}): Promise<MemoryPage> {
    return this.transport.json("GET", "/v1/memories", { ...options, query: fields });
  }

  /** Yield all memories, page after page. */
  async *all(fields: ListMemoriesFields = {}, options: CallOptions = {}): AsyncGenerator<MemoryItem> {
    for (let cursor = fields.cursor; ; ) {
      const page = await this.list({ ...fields, cursor }, options);
      yield* page.results;
      if (page.next_cursor === null) return;
      cursor = page.next_cursor;
    }
  }

  /** Read a memory, or a message that a search returned. */
  get(memoryId: string, options: CallOptions = {}): Promise<MemoryItem | MessageItem> {
    return this.transport.json("GET", path`/v1/memories/${memoryId}`, options);
  }

  /** Change fields; with `unchanged_since`, only if nobody changed the memory since then. */
  update(memoryId: string, fields: UpdateFields, options: CallOptions = {}): Promise<UpdatedMemory> {
    return this.transport.json("PATCH", path`/v1/memories/${memoryId}`, { ...options, body: fields });
  }

  /** Hide a memory, until `undo`; with `sources`, also the messages that it comes from. */
  delete(memoryId: string, fields: { sources?: boolean } = {}, options: CallOptions = {}): Promise<Changed> {
    return this.transport.json("DELETE", path`/v1/memories/${memoryId}`, { ...options, query: fields });
  }

  /** Hide all memories that match; `dry_run` counts them. */
  deleteAll(fields: DeleteAllFields = {}, options: CallOptions = {}): Promise<DeletedMemories> {
    const query = { user_id: this.transport.config.userId, ...fields };
    return this.transport.json("DELETE", "/v1/memories", { ...options, query, repeatable: true });
  }

  /** Undo the last change of a memory. */
  undo(memoryId: string, fields: { unchanged_since?: string } = {}, options: CallOptions = {}): Promise<Changed> {
    return this.transport.json("POST", path`/v1/memories/${memoryId}/undo`, { ...options, query: fields });
  }

  /** Erase a memory permanently, with its history. */
  purge(memoryId: string, fields: { sources?: boolean } = {}, options: CallOptions = {}): Promise<PurgedMemory> {
    return this.transport.json("POST", path`/v1/memories/${memoryId}/purge`, { ...options, query: fields });
  }

  /** Read the changes of a memory, the oldest first. */
  async history(memoryId: string, options: CallOptions = {}): Promise<HistoryStep[]> {
    const answer = await this.transport.json<{ results: HistoryStep[] }>(
      "GET",
      path`/v1/memories/${memoryId}/history`,
      options,
    );
    return answer.results;
  }

  /** Read the state of an add in the background. */
  job(jobId: string, options: CallOptions = {}): Promise<Job> {
    return this.transport.json("GET", path`/v1/jobs/${jobId}`, options);
  }

  /** List the background work of the last day. */
  async jobs(options: CallOptions = {}): Promise<Job[]> {
    return (await this.transport.json<{ results: Job[] }>("GET", "/v1/jobs", options)).results;
  }
}
