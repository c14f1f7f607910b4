// What a value of each kind means for the verdict: a program to run, a repository elsewhere, a file with secrets. One
// small judge for each kind; they see the value and where it stood. Text is never searched for words that look dangerous:
// only its kind decides. A kind that is not known here is HIGH: the tables are then newer than this.

import { protectedName, secretName } from "./names.js";
import * as paths from "./path_arguments.js";
import { quoted } from "./paths.js";
import { pattern } from "./patterns.js";
import { type Judge, NOTHING, type Place } from "./place.js";
import { readScript } from "./sed.js";
import { endsWithAny, partition, rpartition, startsWithAny, strip, trim, trimEnd, withoutSuffix } from "./strings.js";
import { type Kind, listOf, setOf } from "./tables.js";
import type { Finding } from "./verdicts.js";

const NUMBER = pattern("arguments.NUMBER");
const WORD = pattern("arguments.WORD");
const ZONE_FILE = pattern("arguments.ZONE_FILE");
const URL_FORM = pattern("arguments.URL");
const SCP = pattern("arguments.SCP");
const MAGIC = pattern("arguments.MAGIC");
const WEB = pattern("arguments.WEB");
const NETWORK_SCHEMES = setOf("arguments.NETWORK_SCHEMES");
const SAFE_CHECKPOINTS = setOf("arguments.SAFE_CHECKPOINTS");
const WHEEL = listOf("arguments.WHEEL");
const LINKER_PROGRAMS = listOf("arguments.LINKER_PROGRAMS");
const LONGEST_DATE = 4096;
const { loose, text } = paths;

const number: Judge = (value, place) =>
  NUMBER.fits(value)
    ? NOTHING
    : [place.finding("MEDIUM", `${quoted(value, 60)} is not a number.`), ...loose(value, place)];

const word: Judge = (value, place) =>
  WORD.fits(value) && !value.includes("..")
    ? NOTHING
    : [place.finding("MEDIUM", `${quoted(value, 60)} is not a plain word.`), ...loose(value, place)];

const program: Judge = (value, place) => [
  place.finding("REFUSE", `${place.option || "An argument"} would run another program: ${quoted(value, 80)}.`),
];

function isScp(value: string): boolean {
  return !startsWithAny(value, "/.") && SCP.fits(value);
}

/** Whether a repository lies on another machine. */
export function isRemote(value: string): boolean {
  return URL_FORM.match(value) !== undefined || isScp(value);
}

/** A repository: by URL, by `host:path`, by the name of a remote, or a directory. */
const remote: Judge = (value, place) => {
  const found = URL_FORM.match(value);
  if (found !== undefined) {
    if (!NETWORK_SCHEMES.has((found.groups.g1 ?? "").toLowerCase()) || found.groups.g2 === "::") {
      const reason = `${quoted(value)} uses a transport that may run programs or read any file.`;
      return [place.finding("REFUSE", reason)];
    }
    return dashed(value.slice(found.end), value, place);
  }
  return isScp(value) ? dashed(value, value, place) : loose(value, place);
};

/** A host that ssh would take for an option, which can name a program. */
function dashed(host: string, value: string, place: Place): readonly Finding[] {
  const bare = rpartition(partition(host, "/")[0], "@")[2];
  return host.startsWith("-") || bare.startsWith("-")
    ? [place.finding("REFUSE", `${quoted(value)} would be read as an option, not as a host.`)]
    : NOTHING;
}

/** Where commits are sent: one of the repository's remotes is usual, an address is not. */
const target: Judge = (value, place) => {
  const findings = remote(value, place);
  return findings.length === 0 && isRemote(value)
    ? [place.finding("HIGH", `Sends to ${quoted(value)}, which is none of the remotes.`, undefined, true)]
    : findings;
};

const dateFormat: Judge = (value, place) =>
  value.startsWith("+")
    ? text(value, place)
    : [place.finding("REFUSE", `${quoted(value)} would set the system clock.`, "write a format as +%Y-%m-%d")];

const date: Judge = (value, place) => {
  // Not even looked through when it is longer than any date: that would take too long.
  if (value.includes("TZ=") && (value.length > LONGEST_DATE || ZONE_FILE.search(value))) {
    return [place.finding("REFUSE", `${quoted(value)} names a file outside as time zone.`)];
  }
  return value.includes("TZ=")
    ? [place.finding("MEDIUM", `${quoted(value)} names a time zone file.`)]
    : text(value, place);
};

const module: Judge = (value, place) => {
  const option = place.table.modules.get(partition(value, ".")[0]);
  return option === undefined
    ? loose(value, place)
    : [place.finding(option.level ?? "LOW", option.because ?? `Runs the module ${quoted(value)}.`)];
};

/** An npm package: a name from the registry is usual; a URL, an archive or a repository is not. */
const npmPackage: Judge = (value, place) => {
  const behind = rpartition(value, "@")[2];
  const refused = loose(behind.startsWith("file:") ? behind : value, place);
  if (refused.length > 0) {
    return refused;
  }
  const spec = partition(Array.from(value).slice(1).join(""), "@")[2] || value;
  const shorthand = spec.includes("/") && !startsWithAny(spec, "@./"); // owner/repository on GitHub
  return shorthand || value.includes(":") || endsWithAny(value, [".tgz", ".tar.gz"])
    ? [place.finding("HIGH", `${quoted(value)} is fetched from outside the registry.`)]
    : NOTHING;
};

const setting: Judge = (value, place) => {
  const [given, , behind] = partition(value, "=");
  const name = given.toLowerCase();
  return place.table.settings?.includes(name) || startsWithAny(name, ["color.", "advice."])
    ? loose(behind, place)
    : [place.finding("REFUSE", `The setting ${quoted(name)} could make git run a program.`, "leave it out")];
};

const linker: Judge = (value, place) => {
  const pieces = value.split(",");
  const runs = pieces.find((piece) => startsWithAny(piece, LINKER_PROGRAMS));
  if (runs !== undefined) {
    return [place.finding("REFUSE", `${quoted(runs)} would make the compiler load another program.`)];
  }
  return pieces.map((piece) => loose(piece, place)).find((found) => found.length > 0) ?? NOTHING;
};

const checkpoint: Judge = (value, place) =>
  SAFE_CHECKPOINTS.has(partition(value, "=")[0])
    ? NOTHING
    : [place.finding("REFUSE", `A checkpoint could run ${quoted(value)}.`)];

const script: Judge = (value, place) =>
  value === "-"
    ? [place.finding("HIGH", "Runs what it is given as input.")]
    : [...module(value, place), ...paths.pathName(value, place)];

const glob: Judge = (value, place) =>
  secretName(value) || secretName(trim(value, "*"))
    ? [place.finding("MEDIUM", `${quoted(value)} asks for files that usually hold secrets.`, undefined, true)]
    : text(value, place);

const refspec: Judge = (value, place) =>
  startsWithAny(value, "+:")
    ? [place.finding("HIGH", `${quoted(value)} overwrites or deletes a branch elsewhere.`, undefined, true)]
    : loose(value, place);

const source: Judge = (value, place) =>
  value.startsWith("@")
    ? [place.finding("REFUSE", `${quoted(value)} holds arguments that cannot be seen.`, "give them one by one")]
    : loose(value, place);

const pathspec: Judge = (value, place) => {
  const findings = loose(value, place);
  return secretName(rpartition(value, ":")[2])
    ? [...findings, place.finding("MEDIUM", `${quoted(value)} usually holds secrets.`, undefined, true)]
    : findings;
};

const tree: Judge = (value, place) => {
  const isProtected = protectedName(MAGIC.sub(value, () => ""));
  return isProtected === undefined
    ? loose(value, place)
    : [place.finding("REFUSE", `${quoted(value)} may not be changed. ${isProtected}`)];
};

/** As `remote`; and the last part of the address is the name of a new directory. */
const origin: Judge = (value, place) => {
  const behind = rpartition(withoutSuffix(trimEnd(value, "/"), "/.git"), "/")[2];
  const name = withoutSuffix(rpartition(behind, ":")[2], ".git");
  return [...remote(value, place), ...(trim(name, ".") ? paths.pathMake(name, place) : NOTHING)];
};

const sedScript: Judge = (value, place) => {
  const read = readScript(value);
  const findings: Finding[] = [];
  if (read.runs) {
    findings.push(place.finding("REFUSE", `The script ${quoted(value, 80)} would run a program.`));
  }
  findings.push(...read.writes.flatMap((name) => paths.pathWrite(name, place)));
  findings.push(...read.reads.flatMap((name) => paths.pathRead(name, place)));
  if (!read.readable) {
    const reason = `What the script ${quoted(value, 80)} does cannot be told; sed can write files and run programs.`;
    findings.push(place.finding("HIGH", reason));
  } else if (!read.certain) {
    findings.push(place.finding("MEDIUM", `The script ${quoted(value, 80)} does more than show lines.`));
  }
  return findings.length > 0 ? findings : text(value, place);
};

const url: Judge = (value, place) =>
  WEB.fits(value)
    ? NOTHING
    : [
        place.finding(
          "REFUSE",
          `${quoted(value)} is not the plain address of a web page.`,
          "give a full URL that begins with https://",
        ),
      ];

/** A package for pip; `.` and directories of the workspace are the project's own. */
const requirement: Judge = (value, place) => {
  const whole = loose(value, place);
  const refused = whole.length > 0 ? whole : loose(strip(partition(value, "@")[2]), place);
  if (refused.length > 0) {
    return refused;
  }
  return value.includes(":") || value.includes(" @ ") || endsWithAny(value, WHEEL)
    ? [place.finding("HIGH", `${quoted(value)} does not come from the package index.`, undefined, true)]
    : NOTHING;
};

const JUDGES: ReadonlyMap<Kind, Judge> = new Map<Kind, Judge>([
  ["text", text],
  ["number", number],
  ["word", word],
  ["path-read", paths.pathRead],
  ["path-name", paths.pathName],
  ["path-write", paths.pathWrite],
  ["program", program],
  ["loose", loose],
  ["remote", remote],
  ["file-list", paths.fileList],
  ["date-format", dateFormat],
  ["date", date],
  ["module", module],
  ["package", npmPackage],
  ["setting", setting],
  ["linker", linker],
  ["checkpoint", checkpoint],
  ["archive", paths.archive],
  ["script", script],
  ["refspec", refspec],
  ["source", source],
  ["target", target],
  ["glob", glob],
  ["pathspec", pathspec],
  ["tree", tree],
  ["origin", origin],
  ["sed-script", sedScript],
  ["path-make", paths.pathMake],
  ["path-change", paths.pathChange],
  ["path-remove", paths.pathRemove],
  ["url", url],
  ["requirement", requirement],
]);

/** Findings for one value; an empty list when it is harmless. */
export function judgeValue(kind: Kind, value: string, place: Place): readonly Finding[] {
  const judge = JUDGES.get(kind);
  return judge === undefined
    ? [place.finding("HIGH", `${quoted(value)} is of a kind not known here.`)]
    : judge(value, place);
}

/** The kinds that are known; a test holds them against the tables. */
export const KINDS: ReadonlySet<Kind> = new Set(JUDGES.keys());
