// The package as others get it: what it exports is built, and what its documents show compiles.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const scratch = mkdtempSync(join(root, ".test-"));
const about = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const tsc = (...options: string[]) => execFileSync(join(root, "node_modules/.bin/tsc"), options, { cwd: root });

afterAll(() => rmSync(scratch, { recursive: true }));

test("every export is built as a module with types, and loads", async () => {
  tsc("-p", "tsconfig.build.json", "--outDir", join(scratch, "dist"));
  for (const [path, { types, default: module }] of Object.entries<Record<string, string>>(about.exports)) {
    expect(existsSync(join(scratch, types as string)), path).toBe(true);
    expect(Object.keys(await import(join(scratch, module as string))).length, path).toBeGreaterThan(0);
  }
  expect(about.dependencies).toBeUndefined();
});

test("what the documents show compiles", () => {
  const documents = [join(root, "README.md"), join(root, "../docs/javascript.md")];
  const code = documents.flatMap((path) => [...readFileSync(path, "utf8").matchAll(/```ts\n(.*?)```/gs)]);
  expect(code.length).toBeGreaterThan(5);
  const directory = join(scratch, "shown");
  mkdirSync(directory);
  code.forEach((block, index) => {
    writeFileSync(join(directory, `shown${index}.ts`), `${block[1]}\nexport {};\n`);
  });
  // What they take for granted.
  const machine = 'import { Machine } from "byleave";\nexport const machine = new Machine();\n';
  writeFileSync(join(directory, "machine.ts"), machine);
  const paths = Object.fromEntries(
    Object.entries<Record<string, string>>(about.exports).map(([path, { default: module }]) => [
      `byleave${path.slice(1)}`,
      [join(root, (module as string).replace("dist", "src").replace(/js$/, "ts"))],
    ]),
  );
  const options = { extends: join(root, "tsconfig.json"), compilerOptions: { noEmit: true, paths }, include: ["*.ts"] };
  writeFileSync(join(directory, "tsconfig.json"), JSON.stringify(options));
  tsc("-p", directory);
});
