// A model that plays back answers, so that the examples run without a provider.
import { simulateReadableStream } from "ai";
import { MockLanguageModelV3 } from "ai/test";

type Content = { type: "text"; text: string } | { type: "tool-call"; toolCallId: string; toolName: string; input: string };

const USAGE = {
  inputTokens: { total: 0, noCache: 0, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 0, text: 0, reasoning: 0 },
};

export function say(text: string): Content {
  return { type: "text", text };
}

export function callTool(toolName: string, input: object): Content {
  return { type: "tool-call", toolCallId: `call-${toolName}`, toolName, input: JSON.stringify(input) };
}

export function scriptedModel(...answers: Content[]): MockLanguageModelV3 {
  let next = 0;
  const take = () => {
    const content = answers[next++];
    if (!content) throw new Error("the script of the model has ended");
    const unified = content.type === "text" ? ("stop" as const) : ("tool-calls" as const);
    return { content, finishReason: { unified, raw: undefined } };
  };
  return new MockLanguageModelV3({
    doGenerate: async () => {
      const { content, finishReason } = take();
      return { content: [content], finishReason, usage: USAGE, warnings: [] };
    },
    doStream: async () => {
      const { content, finishReason } = take();
      const parts = content.type === "text" ? textParts(content.text) : [content];
      const chunks = [...parts, { type: "finish" as const, finishReason, usage: USAGE }];
      return { stream: simulateReadableStream({ chunks }) };
    },
  });
}

function textParts(text: string) {
  const words = text.split(/(?<= )/);
  const deltas = words.map((delta) => ({ type: "text-delta" as const, id: "1", delta }));
  return [{ type: "text-start" as const, id: "1" }, ...deltas, { type: "text-end" as const, id: "1" }];
}
