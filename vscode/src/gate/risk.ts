// How much a write could harm, by what the file is for and by its extension. Protected files and program files are
// refused, files that something executes or trusts are HIGH with a plain warning, text of the named extensions is MEDIUM,
// everything else HIGH. It sees name and content, never a disk.

import { namesOf, protectedName, trustedName } from "./names.js";
import { quoted } from "./paths.js";
import { pattern } from "./patterns.js";
import { rpartition } from "./strings.js";
import { type Level, setOf, textOf } from "./tables.js";
import type { Finding } from "./verdicts.js";

const MEDIUM_EXTENSIONS = setOf("risk.MEDIUM_EXTENSIONS");
const SCRIPTS = setOf("risk.SCRIPTS");
const PROGRAM = pattern("risk.PROGRAM");
const MASK_PREFIX = textOf("secret_formats.MASK_PREFIX");

/** Findings for a write to a path that is known to stay inside the workspace; never empty. */
export function assessWrite(path: string, content: string): Finding[] {
  const isProtected = protectedName(path);
  if (isProtected !== undefined) {
    return [finding("REFUSE", `${quoted(path)} may not be written. ${isProtected}`, "protected")];
  }
  const last = namesOf(path).at(-1) ?? "";
  if (PROGRAM.fits(last)) {
    return [finding("REFUSE", `${quoted(path)} would be a program or binary file; only text is written.`, "program")];
  }
  const findings = [byName(path, last)];
  if (content.includes(MASK_PREFIX)) {
    const reason = "The content holds a mask in place of a secret; writing it would replace the real secret.";
    findings.push({ ...finding("HIGH", reason, "masked", true), instead: "edit the file without its secret lines" });
  }
  if (content.includes("\0")) {
    findings.push(finding("HIGH", "The content holds NUL bytes: it is not text.", "binary"));
  }
  return findings;
}

function byName(path: string, last: string): Finding {
  const trusted = trustedName(path);
  if (trusted !== undefined) {
    return finding("HIGH", `${quoted(path)} is more than text. ${trusted}`, "trusted", true);
  }
  const [stem, dot, ending] = rpartition(last, ".");
  const named = dot !== "" && stem !== "";
  if (named && MEDIUM_EXTENSIONS.has(`.${ending}`)) {
    return finding("MEDIUM", "Writes a text file.", "text");
  }
  if (named && SCRIPTS.has(ending)) {
    return finding("HIGH", `Writes a .${ending} script: whoever runs it next runs what is written here.`, "script");
  }
  const what = named ? `.${ending} file` : "file without an extension";
  return finding("HIGH", `Writes a ${what}, which is none of the kinds known to be plain text.`, "other");
}

function finding(level: Level, reason: string, rule: string, alwaysAsks = false): Finding {
  return { level, reason, rule: `write.${rule}`, alwaysAsks };
}
