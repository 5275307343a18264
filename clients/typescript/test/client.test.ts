import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Memrecall, MemrecallError, type RecallStep } from "memrecall-client";

import { flakyFetch, startService, type Service } from "./service.js";

let service: Service;
let memory: Memrecall;

before(async () => {
  service = await startService();
  memory = service.client();
  await memory.messages.add([
    { message_id: "m1", role: "user", content: "My dog Bruno is afraid of thunder", ts: "2026-01-01T10:00:00Z" },
    { message_id: "m2", role: "user", content: "我不吃辣，火锅要清汤的", ts: "2026-01-02T10:00:00Z" },
    { message_id: "m3", role: "assistant", content: "Noted.", ts: "2026-01-03T10:00:00Z" },
  ]);
});
after(() => service.stop());

async function errorOf(work: PromiseLike<unknown>): Promise<MemrecallError> {
  try {
    await work;
  } catch (error) {
    assert.ok(error instanceof MemrecallError, String(error));
    return error;
  }
  throw new Error("no error");
}

test("messages are stored, read, searched and erased", async () => {
  const { items } = await memory.messages.list({ order: "asc", page_size: 2 });
  assert.deepEqual(items.map((item) => item.message_id), ["m1", "m2"]);
  const ids = [];
  for await (const { message_id } of memory.messages.all({ order: "asc", page_size: 2 })) ids.push(message_id);
  assert.deepEqual(ids.slice(0, 3), ["m1", "m2", "m3"]);
  assert.equal((await memory.messages.get("m2")).content, "我不吃辣，火锅要清汤的");
  const around = await memory.messages.neighbors("m2", { before: 1, after: 1 });
  assert.equal(around.items.length, 3);
  assert.equal((await memory.messages.searchWords("不吃辣")).items[0]?.message_id, "m2");
  assert.ok((await memory.messages.searchMeaning("thunder", { top_k: 1 })).items.length <= 1);
  await memory.messages.add([{ message_id: "gone", role: "user", content: "forget me" }]);
  assert.equal((await memory.messages.delete("gone")).deleted, 1);
  assert.equal((await errorOf(memory.messages.get("gone"))).code, "NOT_FOUND");
  assert.equal((await memory.messages.undo("gone")).event, "UNDO");
  assert.equal((await memory.messages.get("gone")).content, "forget me");
  assert.equal((await memory.messages.purge("gone")).purged, 1);
  assert.equal((await errorOf(memory.messages.undo("gone"))).code, "NOT_FOUND");
});

test("memories are added, changed, undone and erased", async () => {
  const added = await memory.add("Bruno eats fish", { infer: false, metadata: { topic: "dog" } });
  const id = added.results[0]!.id!;
  const found = await memory.search("Bruno", { kinds: "memory", filters: { topic: "dog" } });
  assert.equal(found.results[0]?.id, id);
  const updated = await memory.memories.update(id, { memory: "Bruno eats salmon" });
  assert.equal(updated.memory, "Bruno eats salmon");
  assert.equal((await memory.memories.history(id)).at(-1)?.event, "UPDATE");
  const { messages } = await memory.memories.delete(id);
  assert.equal(messages!.length, 1);
  assert.equal((await errorOf(memory.messages.get(messages![0]!))).code, "NOT_FOUND");
  await memory.memories.undo(id);
  assert.equal((await memory.messages.get(messages![0]!)).content, "Bruno eats fish");
  const item = await memory.memories.get(id);
  assert.ok(item.kind === "memory" && item.layer);
  const listed = [];
  for await (const { id: each } of memory.memories.all({ limit: 1 })) listed.push(each);
  assert.ok(listed.includes(id));
  assert.equal((await memory.memories.purge(id)).purged, 1);
  const counted = await memory.memories.deleteAll({ filters: { topic: "nothing" }, dry_run: true });
  assert.deepEqual([counted.found, counted.dry_run], [0, true]);
});

test("an add in the background is a job", async () => {
  const { job } = await memory.add("I play the cello.", { background: true });
  while ((await memory.memories.job(job!.job_id)).state !== "done") await new Promise((go) => setTimeout(go, 50));
  assert.ok((await memory.memories.jobs()).some(({ job_id }) => job_id === job!.job_id));
  assert.equal((await memory.memories.extract({ dry_run: true })).run, null);
  assert.deepEqual(await memory.memories.extractions(), []);
});

test("a recall is awaited, iterated over, or made into a block", async () => {
  const result = await memory.recall("What is my dog afraid of?");
  assert.equal(result.memories[0]?.memory_key, "m1");
  let ended = 0;
  const none = memory.with({ url: "http://127.0.0.1:1", maxRetries: 0 }).recall("dog?");
  assert.equal(await none.catch((error: MemrecallError) => error.code), "UNAVAILABLE");
  const again = await memory.recall("What is my dog afraid of?").finally(() => (ended += 1));
  assert.deepEqual([again.memories[0]?.memory_key, ended], ["m1", 1]);
  const steps: RecallStep[] = [];
  for await (const step of memory.recall([{ role: "user", content: "我的火锅要清汤的吗？" }])) steps.push(step);
  const last = steps.at(-1)!;
  assert.ok(last.kind === "done" && "result" in last && last.result.memories[0]?.memory_key === "m2");
  assert.ok(steps.some(({ kind }) => kind === "start"));
  assert.match(await memory.recallBlock("What is my dog afraid of?"), /thunder/);
  assert.equal(await memory.recallBlock("thanks!", { block: { if_needed: true } }), "");
});

test("leaving a stream, or aborting it, ends it", async () => {
  for await (const step of memory.recall("What is my dog afraid of?")) {
    assert.equal(step.kind, "start");
    break;
  }
  const controller = new AbortController();
  await assert.rejects(async () => {
    for await (const _ of memory.recall("dog?", {}, { signal: controller.signal })) controller.abort(new Error("enough"));
  }, /enough/);
});

test("users do not see each other, and ids may have any characters", async () => {
  const ben = memory.with({ userId: "ben/1 安" });
  await ben.messages.add([{ message_id: "a/b ?", role: "user", content: "Ben keeps bees" }]);
  assert.equal((await ben.messages.get("a/b ?")).user_id, "ben/1 安");
  const { results } = await ben.search("thunder", { kinds: "message" });
  assert.deepEqual(new Set(results.map(({ user_id }) => user_id)), new Set(["ben/1 安"]));
  assert.equal((await errorOf(memory.with({ userId: "carl" }).search("x"))).status, 403);
});

test("errors have a code, a hint and details", async () => {
  const unknown = await errorOf(service.client({ key: "mr_no_no" }).search("x"));
  assert.deepEqual([unknown.code, unknown.status], ["UNAUTHENTICATED", 401]);
  assert.match(unknown.hint, /keys create/);
  const invalid = await errorOf(memory.search("x", { limit: 0 }));
  assert.equal(invalid.code, "INVALID_ARGUMENT");
  assert.match(JSON.stringify(invalid.details), /limit/);
  assert.ok(invalid.requestId);
  const message = { message_id: "m1", role: "user" as const, content: "something else" };
  assert.equal((await errorOf(memory.messages.add([message]))).code, "CONFLICT");
  const nobody = service.client({ url: "http://127.0.0.1:1", maxRetries: 0 });
  assert.deepEqual(await errorOf(nobody.search("x")).then(({ code, status }) => [code, status]), ["UNAVAILABLE", 0]);
  const proxy = service.client({ maxRetries: 0, fetch: async () => new Response("<h1>Bad gateway</h1>", { status: 502 }) });
  assert.equal((await errorOf(proxy.search("x"))).code, "UNAVAILABLE");
  assert.throws(() => new Memrecall({ url: "", userId: "ann" }), TypeError);
});

test("a write whose answer was lost is sent again, and stored once", async () => {
  const { fetch, requests } = flakyFetch("lost after", 503, "lost before");
  const client = service.client({ fetch, maxRetries: 3 });
  const receipt = await client.messages.add([{ role: "user", content: "Ann sails on Sundays" }]);
  assert.deepEqual([requests.length, receipt.stored, receipt.items[0]?.status], [4, 0, "same"]);
  const bodies = new Set(await Promise.all(requests.map((request) => request.text())));
  assert.equal(bodies.size, 1);
  const blank = flakyFetch("lost after");
  const unset = { message_id: undefined, ts: undefined, role: "user" as const, content: "Ann skates on Tuesdays" };
  await service.client({ fetch: blank.fetch }).messages.add([unset]);
  assert.equal((await client.messages.searchWords("skates")).items.length, 1);
  await client.add([{ id: "own-id", role: "user", content: "Ann dives on Fridays" }]);
  assert.equal((await client.messages.get("own-id")).content, "Ann dives on Fridays");
  const page = await client.messages.searchWords("sails");
  assert.equal(page.items.length, 1);
  const twice = flakyFetch("lost after");
  const added = await service.client({ fetch: twice.fetch }).add("Ann rows on Mondays", { infer: false });
  assert.equal(twice.requests.length, 2);
  assert.deepEqual(added.statuses, ["same"]);
  const rows = await memory.search("rows on Mondays", { kinds: "memory" });
  assert.equal(rows.results.filter(({ memory: text }) => text === "Ann rows on Mondays").length, 1);
});

test("what cannot be repeated is sent again only after a refusal", async () => {
  const id = (await memory.add("Ann has a canoe", { infer: false })).results[0]!.id!;
  const lost = flakyFetch("lost after");
  assert.equal((await errorOf(service.client({ fetch: lost.fetch }).memories.update(id, { pinned: true }))).code, "UNAVAILABLE");
  assert.equal(lost.requests.length, 1);
  const refused = flakyFetch(429);
  await service.client({ fetch: refused.fetch }).memories.update(id, { pinned: false });
  assert.equal(refused.requests.length, 2);
  const invalid = flakyFetch();
  await errorOf(service.client({ fetch: invalid.fetch }).search("x", { limit: 0 }));
  assert.equal(invalid.requests.length, 1);
});

test("signals and timeouts end calls and waits for a retry", async () => {
  const hanging: typeof fetch = (_, init) =>
    new Promise((_, reject) => init!.signal!.addEventListener("abort", () => reject(init!.signal!.reason)));
  const slow = service.client({ fetch: hanging });
  const late = await errorOf(slow.search("x", {}, { timeout: 30 }));
  assert.deepEqual([late.code, late.status], ["DEADLINE_EXCEEDED", 0]);
  assert.equal((await errorOf(slow.search("x", {}, { timeout: 30.5 }))).code, "DEADLINE_EXCEEDED");
  for (const timeout of [-5, 0, NaN, Infinity]) {
    await assert.rejects(slow.search("x", {}, { timeout }), /timeout is .*; use milliseconds above 0/);
  }
  const controller = new AbortController();
  const search = slow.search("x", {}, { signal: controller.signal });
  controller.abort();
  await assert.rejects(search, { name: "AbortError" });
  await assert.rejects(async () => slow.search("x", {}, { signal: AbortSignal.abort() }), { name: "AbortError" });
  const busy = async () => new Response("{}", { status: 503, headers: { "Retry-After": "60" } });
  const waiting = service.client({ fetch: busy }).search("x", {}, { signal: AbortSignal.timeout(30) });
  await assert.rejects(waiting, { name: "TimeoutError" });
  const { fetch: counted, requests } = flakyFetch();
  const bound = service.client({ fetch: counted, project: "site", spaces: ["team-x", "team-y"], timeout: 5_000 });
  assert.equal((await errorOf(bound.search("x"))).status, 404); // There are no such spaces.
  const { headers } = requests[0]!;
  assert.equal(headers.get("x-memrecall-spaces"), "team-x,team-y");
  assert.equal(headers.get("x-memrecall-project"), "site");
  assert.ok(Number(headers.get("x-memrecall-deadline")) <= 5);
});

test("a client of a space reads and writes it as its user", async () => {
  await memory.spaces.create({ space_id: "team-安", name: "Team" });
  await memory.spaces.setMember("team-安", "maya", "reader", { name: "Maya" });
  const team = memory.space("team-安");
  const id = (await team.add("The launch is on Friday.", { infer: false })).results[0]!.id!;
  await team.messages.add([{ message_id: "t1", role: "user", content: "The rocket is called Heron" }]);
  assert.equal((await team.messages.get("t1")).user_id, "space:team-安");
  assert.equal((await team.messages.searchWords("Heron")).items[0]?.message_id, "t1");
  const found = (await team.search("launch", { kinds: "memory" })).results[0]!;
  assert.deepEqual([found.id, found.space, found.author], [id, "team-安", "ann"]);
  const recalled = (await team.recall("What is the rocket called?")).memories;
  assert.ok(recalled.some(({ memory_key }) => memory_key.endsWith("t1")));
  assert.match(await team.recallBlock("What is the rocket called?"), /Heron/);
  assert.deepEqual((await team.memories.list()).results.map((item) => item.id), [id]);
  await team.memories.update(id, { memory: "The launch is on Monday." });
  assert.equal((await team.memories.history(id)).length, 2);
  await team.memories.undo(id);
  assert.equal((await team.memories.deleteAll({ dry_run: true })).memories, 1);
  assert.deepEqual(await team.memories.jobs(), []);

  const { owner, members } = await team.memories.whoCanSee(id);
  assert.deepEqual([owner, members.map(({ member }) => member)], [{ kind: "space", id: "team-安" }, ["ann", "maya"]]);
  const maya = team.with({ userId: "maya" });
  const [reason] = await maya.memories.whySeen(id);
  assert.deepEqual([reason!.role, reason!.granted_by, reason!.author], ["reader", "ann", "ann"]);
  assert.equal((await errorOf(maya.add("Maya only reads", { infer: false }))).status, 403);
  assert.equal((await errorOf(memory.memories.get(id))).code, "NOT_FOUND"); // Personal data is another owner's.
  const own = (await memory.add("Ann has a drum", { infer: false })).results[0]!.id!;
  assert.deepEqual((await memory.memories.whoCanSee(own)).owner, { kind: "user", id: "ann" });
  assert.equal((await memory.memories.whySeen(own))[0]!.space, null);
  await memory.spaces.delete("team-安", "Team");
  assert.equal((await errorOf(team.search("launch"))).status, 404);
});

test("members share a space", async () => {
  const { spaces } = memory;
  assert.equal((await spaces.create({ space_id: "team-x", name: "Team X" })).role, "admin");
  await spaces.setMember("team-x", "maya", "contributor", { name: "Maya" });
  assert.deepEqual((await spaces.members("team-x")).map(({ role }) => role), ["admin", "contributor"]);
  const { results } = await memory.add("My sister Eva lives in Lisbon.");
  const own = results.find((item) => item.event === "ADD")!;
  const copy = await spaces.promote("team-x", own.id!);
  const maya = service.client({ userId: "maya", spaces: ["team-x"] });
  const found = (await maya.search("Where does Eva live?")).results[0]!;
  assert.equal(found.space, "team-x");
  assert.equal((await maya.spaces.get("team-x")).role, "contributor");
  await spaces.demote("team-x", String(copy.id));
  await maya.spaces.removeMember("team-x", "maya");
  const stranger = await errorOf(maya.search("Where does Eva live?"));
  const unknown = await errorOf(memory.spaces.get("team-y"));
  assert.deepEqual([stranger.status, stranger.message], [unknown.status, unknown.message]);
  assert.deepEqual((await spaces.audit("team-x")).map(({ action }) => action).slice(0, 2), ["leave", "demote"]);
  assert.deepEqual((await spaces.list()).map(({ space_id }) => space_id), ["team-x"]);
  await spaces.delete("team-x", "Team X");
  assert.deepEqual(await spaces.list(), []);
});
