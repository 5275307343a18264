/** Tools and a middleware for the AI SDK (the package `ai`). */
import { jsonSchema, tool, type LanguageModelMiddleware, type Tool } from "ai";

import type { Memrecall } from "./client.js";
import type { InputMessage } from "./types.js";

const MOST_MESSAGES = 100; // of the conversation that a recall reads
const LARGEST_PICTURE = 5_000_000; // characters; of a larger one, only that there was one is stored
const NOTHING = "Nothing is stored about this.";

export type ToolName = "recall" | "remember" | "search_messages" | "forget";

export interface ToolsOptions {
  /** Which tools; by default all but `forget`, by which a model can delete. */
  tools?: ToolName[];
  /** The conversation that `remember` stores in. */
  sessionId?: string;
}

/** Return memory tools for `generateText` and `streamText`; none of them takes a user. */
export function memrecallTools(
  memory: Memrecall,
  { tools = ["recall", "remember", "search_messages"], sessionId }: ToolsOptions = {},
): Record<string, Tool<any, any>> {
  const all: Record<ToolName, Tool<any, any>> = {
    recall: tool({
      description:
        "Recall what the user refers to, from earlier conversations. Use it before you say that you do not know.",
      inputSchema: textSchema("query", "The user's question, or what to recall, in the user's words."),
      execute: async ({ query }, { abortSignal }) =>
        (await memory.recallBlock(query, {}, { signal: abortSignal })) || NOTHING,
    }),
    remember: tool({
      description: "Remember a fact that the user told you for later conversations.",
      inputSchema: textSchema("fact", "One sentence that can be understood without the conversation."),
      execute: async ({ fact }, { abortSignal }) => {
        const fields = { infer: false, session_id: sessionId };
        const added = await memory.add(fact, fields, { signal: abortSignal });
        return { remembered: added.results.map(({ id, memory: text }) => ({ id, text })) };
      },
    }),
    search_messages: tool({
      description: 'Search what was said earlier, by words, "phrases", OR, -word and prefix*.',
      inputSchema: textSchema("query", "The words to look for."),
      execute: async ({ query }, { abortSignal }) => {
        const page = await memory.messages.searchWords(query, { page_size: 10 }, { signal: abortSignal });
        return page.items.map(({ message_id, ts, role, speaker, content }) => ({
          message_id,
          ts,
          speaker: speaker ?? role,
          content,
        }));
      },
    }),
    forget: tool({
      description:
        "Delete a memory, because the user asked to forget it. With the id of a message, erase that message permanently.",
      inputSchema: textSchema("memory_id", "The id that recall, remember or search_messages returned."),
      execute: async ({ memory_id }, { abortSignal }) =>
        (await memory.memories.delete(memory_id, {}, { signal: abortSignal })).message,
    }),
  };
  return Object.fromEntries(tools.map((name) => [name, all[name]]));
}

function textSchema<Name extends string>(name: Name, description: string) {
  return jsonSchema<Record<Name, string>>({
    type: "object",
    properties: { [name]: { type: "string", minLength: 1, description } },
    required: [name],
    additionalProperties: false,
  });
}

export interface MiddlewareOptions {
  /** The conversation; what it contains already is not recalled again. */
  sessionId?: string;
  /** Characters of the recalled block; 4,000 by default. */
  characters?: number;
  /** Recall for greetings and thanks too. */
  when?: "auto" | "always";
  /** Called when memory fails: the model's call goes on without it. */
  onError?: (error: unknown) => void;
}

/** What the turn is about, and what was recalled for it. */
interface Turn {
  key: string;
  content: InputPart[];
  block: Promise<string>;
}

type Params = Parameters<NonNullable<LanguageModelMiddleware["transformParams"]>>[0]["params"];
type Prompt = Params["prompt"];
type InputPart = Record<string, unknown>;

/** Return a middleware that recalls before a turn and stores it afterwards.
 *
 * A middleware belongs to one conversation of one user. The steps of a turn with tools share one
 * recall, and only the last one is stored.
 */
export function memrecallMiddleware(memory: Memrecall, options: MiddlewareOptions = {}): LanguageModelMiddleware {
  const { sessionId, characters, when } = options;
  const report = options.onError ?? ((error: unknown) => console.warn("memrecall:", error));
  const turns = new WeakMap<object, Turn>();
  let last: { position: number; turn: Turn } | undefined;

  function startTurn(prompt: Prompt, position: number, signal: AbortSignal | undefined): Turn | undefined {
    const messages = conversation(prompt.slice(0, position + 1));
    const content = storedParts(prompt[position]!);
    if (!content.length) return undefined;
    const key = JSON.stringify(messages.at(-1));
    if (last && last.position === position && last.turn.key === key) return last.turn;
    const fields = { session_id: sessionId, block: { if_needed: true, characters, when } };
    const block = memory.recallBlock(messages, fields, { signal }).catch((error: unknown) => {
      if (!signal?.aborted) report(error);
      return "";
    });
    last = { position, turn: { key, content, block } };
    return last.turn;
  }

  async function store(turn: Turn | undefined, answer: string): Promise<void> {
    if (!turn || !answer) return;
    last = undefined;
    const messages = [
      { role: "user" as const, content: turn.content },
      { role: "assistant" as const, content: answer },
    ];
    await memory.add(messages, { session_id: sessionId, background: true }).catch(report);
  }

  return {
    specificationVersion: "v3",
    async transformParams({ params }) {
      const position = params.prompt.findLastIndex((message) => message.role === "user");
      const turn = position < 0 ? undefined : startTurn(params.prompt, position, params.abortSignal);
      if (!turn) return params;
      const changed = withBlock(params, position, await turn.block);
      turns.set(changed, turn);
      return changed;
    },
    async wrapGenerate({ doGenerate, params }) {
      const result = await doGenerate();
      if (!result.content.some((part) => part.type === "tool-call" && !part.providerExecuted)) {
        await store(turns.get(params), textOf(result.content));
      }
      return result;
    },
    async wrapStream({ doStream, params }) {
      const { stream, ...rest } = await doStream();
      let answer = "";
      let isLastStep = true;
      type Part = typeof stream extends ReadableStream<infer Item> ? Item : never;
      const observed = new TransformStream<Part, Part>({
        transform(part, controller) {
          if (part.type === "text-delta") answer += part.delta;
          if (part.type === "tool-call" && !part.providerExecuted) isLastStep = false;
          if (part.type === "error") isLastStep = false;
          controller.enqueue(part);
        },
        async flush() {
          if (isLastStep) await store(turns.get(params), answer);
        },
      });
      return { stream: stream.pipeThrough(observed), ...rest };
    },
  };
}

function withBlock(params: Params, position: number, block: string): Params {
  if (!block) return { ...params };
  const data = { role: "user" as const, content: [{ type: "text" as const, text: block }] };
  return { ...params, prompt: params.prompt.toSpliced(position, 0, data) };
}

/** Return what was said, for a recall, which reads no pictures. */
function conversation(prompt: Prompt): InputMessage[] {
  return prompt
    .flatMap((message): InputMessage[] => {
      if (message.role !== "user" && message.role !== "assistant") return [];
      const parts = storedParts(message).map(({ type, text }) => (type === "file" ? { type: "image" } : { type, text }));
      return parts.length ? [{ role: message.role, content: parts }] : [];
    })
    .slice(-MOST_MESSAGES);
}

/** Return the texts and pictures of a message as memrecall's API takes them. */
function storedParts({ content }: Prompt[number]): InputPart[] {
  const parts = typeof content === "string" ? [{ type: "text" as const, text: content }] : content;
  return parts.flatMap((part): InputPart[] => {
    if (part.type === "text" && part.text) return [{ type: "text", text: part.text }];
    if (part.type !== "file") return [];
    const isPicture = part.mediaType.startsWith("image/");
    const data = isPicture ? encode(part.data) : "";
    if (isPicture && data.length <= LARGEST_PICTURE) return [{ type: "file", mediaType: part.mediaType, data }];
    return [{ type: "text", text: isPicture ? "[image]" : "[file]" }];
  });
}

function encode(data: Uint8Array | string | URL): string {
  if (!(data instanceof Uint8Array)) return String(data);
  let bytes = "";
  for (const byte of data) bytes += String.fromCharCode(byte);
  return btoa(bytes);
}

function textOf(content: string | readonly { type: string; text?: string }[]): string {
  if (typeof content === "string") return content;
  return content.flatMap((part) => (part.type === "text" && part.text ? [part.text] : [])).join("\n");
}
