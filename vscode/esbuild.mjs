// Bundles the extension for the editor's Node: the extension itself and the thread that searches, one file each. `vscode`
// is the editor's own.
import { build } from "esbuild";

await build({
  entryPoints: { extension: "src/extension.ts", scan_worker: "src/tools/scan_worker.ts" },
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
