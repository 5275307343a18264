import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";

import { generateText, stepCountIs, streamText, wrapLanguageModel } from "ai";
import type { Memrecall } from "memrecall-client";
import { memrecallMiddleware, memrecallTools } from "memrecall-client/ai";

import { callTool, say, scriptedModel } from "../examples/scripted-model.js";
import { startService, type Service } from "./service.js";

let service: Service;
let memory: Memrecall;

before(async () => {
  service = await startService();
  memory = service.client();
});
after(() => service.stop());

beforeEach(async () => {
  await memory.messages.add([
    { message_id: "m1", session_id: "old", role: "user", content: "My dog Bruno is afraid of thunder", ts: "2026-01-01T10:00:00Z" },
  ]);
});

const QUESTION = "What is my dog Bruno afraid of?";

test("tools recall, remember and search, and name no user", async () => {
  const model = scriptedModel(
    callTool("remember", { fact: "Ann's sister Clara works at Helix Labs." }),
    callTool("recall", { query: QUESTION }),
    callTool("search_messages", { query: "thunder" }),
    say("thunder"),
  );
  const tools = memrecallTools(memory, { sessionId: "s1" });
  const { text, steps } = await generateText({ model, tools, stopWhen: stepCountIs(6), prompt: QUESTION });
  assert.equal(text, "thunder");
  const outputs = steps.flatMap((step) => step.toolResults.map(({ output }) => JSON.stringify(output)));
  assert.match(outputs[0]!, /Helix Labs/);
  assert.match(outputs[1]!, /thunder/);
  assert.match(outputs[2]!, /"message_id":"m1"/);
  for (const { inputSchema } of model.doGenerateCalls[0]!.tools as { inputSchema: { properties: object } }[]) {
    assert.ok(!Object.keys(inputSchema.properties).some((name) => name.includes("user")));
  }
  assert.deepEqual(Object.keys(memrecallTools(memory, { tools: ["forget"] })), ["forget"]);
});

async function storedIn(session: string): Promise<string[]> {
  const { items } = await memory.messages.list({ session_id: session, order: "asc" });
  return items.map(({ role, content }) => `${role}: ${content}`).sort().reverse();
}

test("the middleware recalls before a turn and stores after it", async () => {
  const scripted = scriptedModel(say("Of thunder."));
  const model = wrapLanguageModel({ model: scripted, middleware: memrecallMiddleware(memory, { sessionId: "s2" }) });
  await generateText({ model, system: "Be brief.", prompt: QUESTION });
  const { prompt } = scripted.doGenerateCalls[0]!;
  assert.deepEqual(prompt.map(({ role }) => role), ["system", "user", "user"]);
  assert.match(JSON.stringify(prompt[1]), /thunder/);
  assert.match(JSON.stringify(prompt[2]), new RegExp(QUESTION.slice(0, -1)));
  assert.deepEqual(await storedIn("s2"), [`user: ${QUESTION}`, "assistant: Of thunder."]);
});

test("a stream passes unchanged, and its text is stored", async () => {
  const scripted = scriptedModel(say("Of loud thunder."));
  const model = wrapLanguageModel({ model: scripted, middleware: memrecallMiddleware(memory, { sessionId: "s3" }) });
  const pieces = [];
  for await (const piece of streamText({ model, prompt: QUESTION }).textStream) pieces.push(piece);
  assert.deepEqual(pieces, ["Of ", "loud ", "thunder."]);
  assert.match(JSON.stringify(scripted.doStreamCalls[0]!.prompt), /Bruno is afraid/);
  assert.deepEqual(await storedIn("s3"), [`user: ${QUESTION}`, "assistant: Of loud thunder."]);
});

test("the steps of a turn share one recall, and are stored once", async () => {
  const scripted = scriptedModel(callTool("search_messages", { query: "Bruno" }), say("Thunder."));
  let recalls = 0;
  const counted: typeof fetch = (input, init) => {
    if (String(input).endsWith("/recall")) recalls += 1;
    return fetch(input, init);
  };
  const middleware = memrecallMiddleware(service.client({ fetch: counted }), { sessionId: "s4" });
  const model = wrapLanguageModel({ model: scripted, middleware });
  await generateText({ model, tools: memrecallTools(memory), stopWhen: stepCountIs(3), prompt: QUESTION });
  assert.equal(recalls, 1);
  assert.match(JSON.stringify(scripted.doGenerateCalls[1]!.prompt[0]), /thunder/);
  assert.deepEqual(await storedIn("s4"), [`user: ${QUESTION}`, "assistant: Thunder."]);
});

test("the middleware recalls with the conversation, and stores what a picture is", async () => {
  const scripted = scriptedModel(say("A dog."), say("Of thunder."));
  const bodies: { messages: { content: unknown }[] }[] = [];
  const observed: typeof fetch = (input, init) => {
    if (String(input).endsWith("/recall")) bodies.push(JSON.parse(String(init!.body)));
    return fetch(input, init);
  };
  const middleware = memrecallMiddleware(service.client({ fetch: observed }), { sessionId: "s6" });
  const model = wrapLanguageModel({ model: scripted, middleware });
  const pixel = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7";
  const picture = { type: "image" as const, image: Buffer.from(pixel, "base64"), mediaType: "image/gif" };
  const first = { role: "user" as const, content: [{ type: "text" as const, text: "What is on this picture?" }, picture] };
  await generateText({ model, messages: [first] });
  const later = { role: "user" as const, content: "And what is Bruno afraid of?" };
  await generateText({ model, messages: [first, { role: "assistant", content: "A dog." }, later] });
  assert.deepEqual(bodies.map(({ messages }) => messages.length), [1, 3]);
  assert.ok(!JSON.stringify(bodies).includes(pixel.slice(0, 20)));
  const { items } = await memory.messages.list({ session_id: "s6", order: "asc" });
  const stored = items.find(({ content }) => content === "What is on this picture?\n[image]")!;
  const [details] = stored.metadata!.pictures as { type: string; size: number }[];
  assert.deepEqual([details!.type, details!.size], ["image/gif", 42]);
});

test("a greeting is not recalled for, and a failure of memory does not end the turn", async () => {
  const scripted = scriptedModel(say("Hello!"), say("I do not know."));
  const errors: unknown[] = [];
  const greeting = memrecallMiddleware(memory, { sessionId: "s5" });
  await generateText({ model: wrapLanguageModel({ model: scripted, middleware: greeting }), prompt: "hi!" });
  assert.equal(scripted.doGenerateCalls[0]!.prompt.length, 1);
  const broken = service.client({ url: "http://127.0.0.1:1", maxRetries: 0 });
  const middleware = memrecallMiddleware(broken, { onError: (error) => errors.push(error) });
  const { text } = await generateText({ model: wrapLanguageModel({ model: scripted, middleware }), prompt: QUESTION });
  assert.equal(text, "I do not know.");
  assert.equal(errors.length, 2);
});
