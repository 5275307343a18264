import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { startService, type Service } from "./service.js";

const ROOT = join(import.meta.dirname, "..", "..");
const folder = mkdtempSync(join(tmpdir(), "memrecall-package-"));
let service: Service;

before(async () => {
  service = await startService();
});
after(async () => {
  await service.stop();
  rmSync(folder, { recursive: true, force: true });
});

function run(program: string, args: string[], cwd: string, env: Record<string, string> = {}): string {
  return execFileSync(program, args, { cwd, encoding: "utf8", env: { ...process.env, ...env } });
}

test("the tarball installs in an empty folder and works there", () => {
  const packed = run("npm", ["pack", "--json", "--pack-destination", folder], ROOT);
  const [{ filename, files }] = JSON.parse(packed.slice(packed.indexOf("["))) as [{ filename: string; files: { path: string }[] }];
  assert.deepEqual([...new Set(files.map(({ path }) => path.split("/")[0]))].sort(), ["LICENSE", "README.md", "dist", "package.json"]);
  writeFileSync(join(folder, "package.json"), '{"type": "module"}');
  run("npm", ["install", "--no-audit", "--no-fund", "--offline", "--omit=peer", `./${filename}`], folder);
  writeFileSync(
    join(folder, "program.js"),
    `import { Memrecall } from "memrecall-client";
     const memory = new Memrecall({ url: ${JSON.stringify(service.url)}, key: ${JSON.stringify(service.key)}, userId: "ann" });
     await memory.add("Ann lives in Rome", { infer: false });
     console.log((await memory.search("Rome", { kinds: "memory" })).results[0].memory);
     for await (const step of memory.recall("Where do I live?")) if (step.kind === "done") console.log(step.result.stop_reason);`,
  );
  const commands = join(ROOT, "node_modules", ".bin");
  const runtimes: [string, string[]][] = [
    [process.execPath, []],
    [join(commands, "deno"), ["run", "--allow-net=127.0.0.1"]],
    [join(commands, "bun"), ["run"]],
  ];
  for (const [program, args] of runtimes) {
    const output = run(program, [...args, "program.js"], folder);
    assert.deepEqual(output.trim().split("\n"), ["Ann lives in Rome", "handoff"], program);
  }
});

test("the package has no dependencies", () => {
  const description = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as Record<string, object>;
  assert.equal(description.dependencies, undefined);
});

for (const name of ["quickstart", "tools", "middleware"]) {
  test(`the example ${name} runs`, async () => {
    const own = await startService();
    try {
      const env = { MEMRECALL_URL: own.url, MEMRECALL_KEY: own.key };
      const output = run(process.execPath, [join(ROOT, ".build", "examples", `${name}.js`)], ROOT, env);
      assert.match(output, { quickstart: /recalled: \w+ .*peanuts/, tools: /recall .*Helix/s, middleware: /shown:.*dentist.*dentist/s }[name]!);
    } finally {
      await own.stop();
    }
  });
}
