// Protected names that are links, such as `.vscode -> ../shared/.vscode`. Nothing can be mounted over a link, so a command
// can replace it. It is looked at before the command and after it has ended: a link that is no longer what it was is made
// again, and what took its place is kept under another name beside it. Never follows a link, and never deletes anything.

import { randomBytes } from "node:crypto";
import { lchownSync, lstatSync, readlinkSync, realpathSync, renameSync, symlinkSync } from "node:fs";

/** A link in the workspace's own directory, as it was before the command. */
export interface Link {
  readonly name: string;
  readonly text: string;
  readonly uid: number;
  readonly gid: number;
  /** Where it led, from the workspace; undefined when that lies outside or is not there. */
  readonly target: string | undefined;
}

export function linkAt(root: string, name: string): Link {
  const { gid, uid } = lstatSync(`${root}/${name}`);
  const text = readlinkSync(`${root}/${name}`);
  return { name, text, uid, gid, target: targetOf(root, name) };
}

/** What those of these names lead to that are links, from the workspace, as far as it lies there. */
export function ledTo(root: string, names: readonly string[]): string[] {
  return names
    .filter((name) => lstatSync(`${root}/${name}`, { throwIfNoEntry: false })?.isSymbolicLink())
    .map((name) => targetOf(root, name))
    .filter((target) => target !== undefined);
}

function targetOf(root: string, name: string): string | undefined {
  try {
    const real = realpathSync(`${root}/${name}`);
    return real.startsWith(`${root}/`) ? real.slice(root.length + 1) : undefined;
  } catch {
    return undefined;
  }
}

/** Make the link again where it is not what it was. Gives the names that are new, or lead to something new. */
export function putBack(root: string, link: Link): string[] {
  const path = `${root}/${link.name}`;
  try {
    if (readlinkSync(path) === link.text) {
      return targetOf(root, link.name) === link.target ? [] : [link.name];
    }
  } catch {
    // it is no link any more
  }
  try {
    const aside = putAside(path);
    symlinkSync(link.text, path);
    if (process.geteuid?.() === 0) {
      lchownSync(path, link.uid, link.gid);
    }
    return aside === undefined ? [] : [`${link.name}${aside}`];
  } catch {
    return [link.name]; // it could not be put back, so what is there now is told
  }
}

/** Give what is there, if anything is, another name; gives what was added to it. */
export function putAside(path: string): string | undefined {
  const added = `.replaced-${randomBytes(4).toString("hex")}`;
  if (lstatSync(path, { throwIfNoEntry: false }) === undefined) {
    return undefined;
  }
  renameSync(path, `${path}${added}`);
  return added;
}
