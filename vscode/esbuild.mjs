// Bundles the extension for the editor's Node into one file. `vscode` is the editor's own.
import { build } from "esbuild";

await build({
  entryPoints: { extension: "src/extension.ts" },
  outdir: "dist",
  outExtension: { ".js": ".cjs" },
  bundle: true,
  platform: "node",
  format: "cjs",
  target: "node20",
  external: ["vscode"],
  minify: true,
  legalComments: "none",
  logLevel: "info",
});
