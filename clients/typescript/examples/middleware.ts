// A model that recalls before each turn and remembers afterwards. Replace the scripted model by
// one of a provider: openai("gpt-5-mini").
import { streamText, wrapLanguageModel } from "ai";
import { Memrecall } from "memrecall-client";
import { memrecallMiddleware } from "memrecall-client/ai";

import { say, scriptedModel } from "./scripted-model.js";

const memory = new Memrecall({
  url: process.env.MEMRECALL_URL ?? "http://127.0.0.1:8765",
  key: process.env.MEMRECALL_KEY,
  userId: "maya",
});
const scripted = scriptedModel(say("Noted: the dentist, on Friday at three."), say("On Friday at three."));

async function chat(sessionId: string, prompt: string): Promise<void> {
  const model = wrapLanguageModel({ model: scripted, middleware: memrecallMiddleware(memory, { sessionId }) });
  const { textStream } = streamText({ model, prompt });
  for await (const piece of textStream) process.stdout.write(piece);
  process.stdout.write("\n");
}

await chat("monday", "My dentist appointment was moved to Friday at three.");
await chat("tuesday", "When is my dentist appointment?");
console.log("The model was shown:", JSON.stringify(scripted.doStreamCalls.at(-1)?.prompt, null, 1));
