import type { components, operations } from "./schema.js";

type Schemas = components["schemas"];
type Query<Name extends keyof operations> = NonNullable<operations[Name]["parameters"]["query"]>;

/** A text, a message, or a list of them, as OpenAI's API writes them. */
export type Messages = Schemas["AddRequest"]["messages"];
export type InputMessage = Schemas["InputMessage"];
export type NewMessage = Schemas["IncomingMessage"];
export type ChatMessage = Schemas["ChatMessage"];
export type MessagePage = Schemas["MessagePage"];
export type LexicalPage = Schemas["LexicalPage"];
export type NearMessages = Schemas["NearMessages"];
export type Neighbors = Schemas["Neighbors"];
export type WriteReceipt = Schemas["WriteReceipt"];
export type DeletedMessage = Schemas["DeletedMessage"];
export type Added = Schemas["Added"];
export type Changed = Schemas["Changed"];
export type DeletedMemories = Schemas["DeletedMemories"];
export type Extraction = Schemas["Extraction"];
export type ExtractionRun = Schemas["ExtractionRun"];
export type FoundMemories = Schemas["FoundMemories"];
export type FoundMemory = Schemas["FoundMemory"];
export type HistoryStep = Schemas["HistoryStep"];
export type Job = Schemas["Job"];
export type MemoryItem = Schemas["MemoryItem"];
export type MemoryPage = Schemas["MemoryPage"];
export type MessageItem = Schemas["MessageItem"];
export type PurgedMemory = Schemas["PurgedMemory"];
export type UpdatedMemory = Schemas["UpdatedMemory"];
export type UndoneExtraction = Schemas["UndoneExtraction"];
export type RecallResult = Schemas["RecallResult"];
export type TraceEvent = Schemas["TraceEvent"];

/** A step of a recall as it happens; the last one has the result. */
export type RecallStep = TraceEvent | { kind: "done"; result: RecallResult };

// The client is bound to a user, and to a project if it is given: calls cannot name another.
type Bound = "user_id" | "project" | "run_id" | "top_k";
export type AddFields = Omit<Schemas["AddRequest"], Bound | "messages">;
export type ExtractFields = Omit<Schemas["ExtractStoredRequest"], Bound>;
export type SearchFields = Omit<Schemas["MemorySearchRequest"], Bound | "query">;
export type RecallFields = Omit<Schemas["RecallRequest"], Bound | "query" | "messages" | "block">;
export type BlockFields = RecallFields & { block?: Schemas["BlockOptions"] };
export type ListMessagesFields = Omit<Query<"read_messages">, Bound>;
export type NeighborsFields = Omit<Query<"read_neighbors">, Bound>;
export type WordSearchFields = Omit<Schemas["LexicalSearchRequest"], Bound | "query_text">;
export type MeaningSearchFields = Omit<
  Schemas["SemanticSearchRequest"],
  "user_id" | "project" | "query_text" | "query_embedding"
>;
export type ListMemoriesFields = Omit<Query<"list_memories">, Bound | "filters"> & {
  filters?: Record<string, unknown>;
};
export type DeleteAllFields = Omit<Query<"delete_memories">, Bound | "filters"> & {
  filters?: Record<string, unknown>;
};
export type UpdateFields = Schemas["UpdateRequest"];
