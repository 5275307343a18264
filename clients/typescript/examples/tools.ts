// A model with memory tools. Replace the scripted model by one of a provider: openai("gpt-5-mini").
import { generateText, stepCountIs } from "ai";
import { Memrecall } from "memrecall-client";
import { memrecallTools } from "memrecall-client/ai";

import { callTool, say, scriptedModel } from "./scripted-model.js";

const memory = new Memrecall({
  url: process.env.MEMRECALL_URL ?? "http://127.0.0.1:8765",
  key: process.env.MEMRECALL_KEY,
  userId: "maya",
});
const model = scriptedModel(
  callTool("remember", { fact: "Maya's sister Clara works at Helix Labs." }),
  callTool("recall", { query: "Where does my sister work?" }),
  say("Clara works at Helix Labs."),
);

const { text, steps } = await generateText({
  model,
  tools: memrecallTools(memory),
  stopWhen: stepCountIs(5),
  prompt: "My sister Clara works at Helix Labs. Where does she work?",
});
for (const step of steps) for (const { toolName, output } of step.toolResults) console.log(toolName, output);
console.log(text);
