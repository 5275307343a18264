// Remember, search and recall. Start a service first: `memrecall serve`.
import { Memrecall } from "memrecall-client";

const memory = new Memrecall({
  url: process.env.MEMRECALL_URL ?? "http://127.0.0.1:8765",
  key: process.env.MEMRECALL_KEY,
  userId: "maya",
});

await memory.add("I moved to Rome in March, and I am allergic to peanuts.", { session_id: "monday" });

const { results } = await memory.search("allergies", { limit: 3 });
for (const { memory: text, score } of results) console.log(score.toFixed(2), text);

for await (const step of memory.recall("What am I allergic to?")) {
  if (step.kind !== "done") console.log("step:", step.kind);
  else console.log("recalled:", step.result.certainty, step.result.memories[0]?.content);
}
