/** Tools and a middleware for the AI SDK (the package `ai`). */
import { jsonSchema, tool, type LanguageModelMiddleware, type Tool } from "ai";

import type { Memrecall } from "./client.js";

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
      description: "Delete a memory, because the user asked to forget it.",
      inputSchema: textSchema("memory_id", "The id of a memory that recall or remember returned."),
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
  text: string;
  block: Promise<string>;
}

type Params = Parameters<NonNullable<LanguageModelMiddleware["transformParams"]>>[0]["params"];

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

  function startTurn(position: number, text: string, signal: AbortSignal | undefined): Turn {
    if (last && last.position === position && last.turn.text === text) return last.turn;
    const fields = { session_id: sessionId, block: { if_needed: true, characters, when } };
    const block = memory.recallBlock(text, fields, { signal }).catch((error: unknown) => {
      if (!signal?.aborted) report(error);
      return "";
    });
    last = { position, turn: { text, block } };
    return last.turn;
  }

  async function store(turn: Turn | undefined, answer: string): Promise<void> {
    if (!turn || !answer) return;
    last = undefined;
    const messages = [
      { role: "user" as const, content: turn.text },
      { role: "assistant" as const, content: answer },
    ];
    await memory.add(messages, { session_id: sessionId, background: true }).catch(report);
  }

  return {
    specificationVersion: "v3",
    async transformParams({ params }) {
      const position = params.prompt.findLastIndex((message) => message.role === "user");
      const text = position < 0 ? "" : textOf(params.prompt[position]!.content);
      if (!text) return params;
      const turn = startTurn(position, text, params.abortSignal);
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

function textOf(content: string | readonly { type: string; text?: string }[]): string {
  if (typeof content === "string") return content;
  return content.flatMap((part) => (part.type === "text" && part.text ? [part.text] : [])).join("\n");
}
