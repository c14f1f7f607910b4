// The webview's document. Its policy lets in one script, by a nonce made for this document, and the extension's own style
// sheet; nothing else is loaded, no address is reached, and nothing inline runs.

import { randomBytes } from "node:crypto";

export interface Parts {
  readonly script: string;
  readonly style: string;
  /** Where the extension's own files are served from. */
  readonly source: string;
}

export function chatHtml({ script, style, source }: Parts, nonce = randomBytes(18).toString("base64url")): string {
  const policy = [
    "default-src 'none'",
    `script-src 'nonce-${nonce}'`,
    `style-src ${source}`,
    `font-src ${source}`,
    `img-src ${source} data:`,
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
  return `<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta http-equiv="Content-Security-Policy" content="${attribute(policy)}">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>Byleave</title>
  <link rel="stylesheet" href="${attribute(style)}">
</head>
<body class="byleave byleave-vscode">
  <div id="root"></div>
  <script type="module" nonce="${nonce}" src="${attribute(script)}"></script>
</body>
</html>`;
}

function attribute(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll('"', "&quot;").replaceAll("<", "&lt;");
}
