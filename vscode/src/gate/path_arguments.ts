// What a path among a command's arguments means for the verdict: does it lead out, is it read, written, made or removed,
// does its name say that it holds secrets or that something else obeys it? No finding means harmless.

import { hiddenInProse } from "./characters.js";
import { protectedName, secretName, trustedName } from "./names.js";
import { checkPath, climbsOut, MAX_PATH_BYTES, quoted, RELATIVE_HINT } from "./paths.js";
import { pattern } from "./patterns.js";
import { type Judge, NOTHING, type Place } from "./place.js";
import { normalPath, rpartition, startsWithAny, withoutPrefix } from "./strings.js";
import { setOf } from "./tables.js";
import type { Finding } from "./verdicts.js";

const GLUED = pattern("arguments.GLUED");
const VARIABLE = pattern("arguments.VARIABLE");
const EXPANDS = pattern("arguments.EXPANDS");
const MEDIUM_EXTENSIONS = setOf("risk.MEDIUM_EXTENSIONS");

export const text: Judge = (value, place) =>
  hiddenInProse(value) === undefined
    ? NOTHING
    : [place.finding("MEDIUM", `${quoted(value, 60)} holds an invisible character.`)];

/** Why a path may not be used by a command. */
function refusalOf(value: string, place: Place, writes = false): Finding | undefined {
  // What is too long for a name is refused below; to look through all of it would take too long.
  const short = value.length <= MAX_PATH_BYTES + (place.workspace ?? "").length;
  const expands = short && EXPANDS.search(value) !== undefined;
  if (value.startsWith("~") || (startsWithAny(value, "$%") && VARIABLE.match(value)) || expands) {
    // Literal for us; but whoever wrote it meant a place outside.
    return place.finding("REFUSE", `${quoted(value)} names a home directory or variable.`, RELATIVE_HINT);
  }
  const { relative, refusal } = checkPath(value, place.workspace);
  const reason = refusal === undefined && writes ? protectedName(relative) : undefined;
  return reason === undefined ? refusal : place.finding("REFUSE", `${quoted(value)} may not be written. ${reason}`);
}

export const pathName: Judge = (value, place) => {
  const refusal = value === "-" ? undefined : refusalOf(value, place);
  return refusal === undefined ? NOTHING : [refusal];
};

export const pathRead: Judge = (value, place) => {
  if (value === "-") {
    return [place.finding("MEDIUM", "Reads its input, which is empty.")];
  }
  const refusal = refusalOf(value, place);
  if (refusal !== undefined) {
    return [refusal];
  }
  return secretName(value)
    ? [place.finding("MEDIUM", `${quoted(value)} usually holds secrets.`, undefined, true)]
    : NOTHING;
};

export const pathWrite: Judge = (value, place) => {
  const refusal = refusalOf(value, place, true);
  if (refusal !== undefined) {
    return [refusal];
  }
  const trusted = trustedName(value);
  return trusted === undefined
    ? [place.finding("HIGH", `Writes ${quoted(value)}.`)]
    : [place.finding("HIGH", `Writes ${quoted(value)}. ${trusted}`, undefined, true)];
};

/** Refuse what leads out of the workspace, alone or behind `name=`; otherwise say nothing. */
export const loose: Judge = (value, place) => {
  const glued = value.startsWith("-") ? GLUED.search(value) : undefined;
  const plain = glued === undefined ? value : value.slice(0, glued.start) + value.slice(glued.end);
  const [, ...behind] = plain.split("=");
  for (const piece of [plain, ...behind]) {
    if (startsWithAny(piece, ["/", "~", "$", "\\", "file:", "@/"]) || piece.includes("..")) {
      const refusal = leadsOut(withoutPrefix(withoutPrefix(piece, "@"), "file:"), place);
      if (refusal !== undefined) {
        return [refusal];
      }
    }
  }
  return text(value, place);
};

function leadsOut(piece: string, place: Place): Finding | undefined {
  if (startsWithAny(piece, ["/", "~/", "\\\\", "$"]) || piece === "~") {
    return refusalOf(piece, place);
  }
  return climbsOut(piece.replaceAll("\\", "/"))
    ? place.finding("REFUSE", `${quoted(piece)} leads out of the workspace.`, RELATIVE_HINT)
    : undefined;
}

export const fileList: Judge = (value, place) => {
  if (value === "-") {
    return [place.finding("REFUSE", "There is no input to read names from.")];
  }
  const refusal = refusalOf(value, place);
  return refusal === undefined
    ? [place.finding("HIGH", `The files that ${quoted(value)} names are used, wherever they lie.`)]
    : [refusal];
};

export const archive: Judge = (value, place) => {
  if (value === "-") {
    return NOTHING;
  }
  if (value.includes(":")) {
    return [place.finding("REFUSE", `${quoted(value)} is an archive on another machine.`)];
  }
  return pathMake(value, place).length > 0
    ? pathWrite(value, place)
    : [place.finding("HIGH", `Reads or writes the archive ${quoted(value)}.`)];
};

function isRoot(value: string, place: Place): boolean {
  return normalPath(checkPath(value, place.workspace).relative) === ".";
}

export const pathMake: Judge = (value, place) => {
  const refusal = refusalOf(value, place, true);
  if (refusal !== undefined) {
    return [refusal];
  }
  const trusted = trustedName(value);
  return trusted === undefined
    ? NOTHING
    : [place.finding("HIGH", `Changes ${quoted(value)}. ${trusted}`, undefined, true)];
};

export const pathChange: Judge = (value, place) => {
  const findings = pathMake(value, place);
  if (findings.length > 0 || value.endsWith("/") || isRoot(value, place)) {
    return findings;
  }
  const [stem, dot, ending] = rpartition(rpartition(value, "/")[2], ".");
  if (dot && stem && MEDIUM_EXTENSIONS.has(`.${ending}`)) {
    return NOTHING;
  }
  const what = dot && stem ? `.${ending} file` : "file without an extension, or into a directory";
  return [place.finding("HIGH", `Writes a ${what}: ${quoted(value)}.`)];
};

export const pathRemove: Judge = (value, place) => {
  const findings = pathMake(value, place);
  if (findings.length === 0 && isRoot(value, place)) {
    return [place.finding("REFUSE", `${quoted(value)} is the workspace itself.`)];
  }
  if (findings.length === 0 && secretName(value)) {
    const reason = `${quoted(value)} usually holds secrets; its name would no longer say so.`;
    return [place.finding("HIGH", reason, undefined, true)];
  }
  return findings;
};
