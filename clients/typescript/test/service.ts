/** `memrecall serve` as a process, and requests that fail on the way to it. */
import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { Memrecall, type MemrecallConfig } from "memrecall-client";

export interface Service {
  url: string;
  key: string;
  client(config?: Partial<MemrecallConfig>): Memrecall;
  stop(): Promise<void>;
}

const [PROGRAM = "memrecall", ...ARGUMENTS] = (process.env.MEMRECALL_COMMAND ?? "memrecall").split(" ");

export async function startService(): Promise<Service> {
  const folder = mkdtempSync(join(tmpdir(), "memrecall-"));
  const db = join(folder, "a.db");
  const env = {
    ...process.env,
    ...{ HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder },
    ...{ MEMRECALL_EMBEDDER: "hash", MEMRECALL_TEXT_WORKERS: "0", MEMRECALL_DASHBOARD: "false" },
  };
  const users = ["ann", "ben/1 安", "maya"].flatMap((user) => ["--user", user]);
  const created = spawnSync(PROGRAM, [...ARGUMENTS, "keys", "create", ...users, "--db", db], { env, encoding: "utf8" });
  if (created.status !== 0) throw new Error(created.stderr);
  const key = created.stdout.trim();
  const server = spawn(PROGRAM, [...ARGUMENTS, "serve", "--port", "0", "--json", "--db", db], {
    env,
    stdio: ["ignore", "pipe", "ignore"],
  });
  const line = await new Promise<string>((resolve, reject) => {
    createInterface(server.stdout).once("line", resolve);
    server.once("exit", (code) => reject(new Error(`memrecall serve ended with ${code}`)));
  });
  const { url } = JSON.parse(line) as { url: string };
  return {
    url,
    key,
    client: (config = {}) => new Memrecall({ url, key, userId: "ann", ...config }),
    stop: async () => {
      const ended = new Promise((resolve) => server.once("exit", resolve));
      server.kill();
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A fetch whose first answers are these; it counts the requests. */
export function flakyFetch(...faults: (number | "lost before" | "lost after")[]) {
  const requests: Request[] = [];
  const answers = [...faults];
  const fetch: typeof globalThis.fetch = async (input, init) => {
    const request = new Request(input, init);
    requests.push(request.clone());
    const fault = answers.shift();
    if (typeof fault === "number") {
      const error = { code: fault === 429 ? "RESOURCE_EXHAUSTED" : "UNAVAILABLE", message: "try again", details: {} };
      return Response.json({ error }, { status: fault, headers: { "Retry-After": "0" } });
    }
    if (fault === "lost before") throw new TypeError("connection refused");
    const response = await globalThis.fetch(request);
    if (fault === "lost after") throw new TypeError("connection reset");
    return response;
  };
  return { fetch, requests };
}
