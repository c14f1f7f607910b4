// Where a search provider is, as its owner wrote it: read once, strictly, by what will connect to it. An address that is
// written out, and `localhost`, is the owner's word, save those that are never asked. Spellings that another program would
// read in another way are refused, and a key goes out over https alone. Nothing is looked up here.

import { isIPv6 } from "node:net";
import { addressOf, isLoopback, isNeverAsked } from "./addresses.js";
import { ConfigurationError } from "./errors.js";
import { repr } from "./words.js";

const NAME = /^[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?$/;
/** What a system would take for an address, however it is spelt: 127.1, 0x7f.1, 2130706433, 127.0.0.1. */
const NUMBER_LAST = /^(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?$/;
const HIDDEN = /[\p{C}\p{Z}\\]/u;
const FORM = /^(https?):\/\/([^/?#]*)([^?#]*)/i;
const AUTHORITY = /^(\[[^\]]*\]|[^:[\]]*)(?::([0-9]*))?$/;

export interface WebAddress {
  readonly encrypted: boolean;
  /** A name in small letters, or an address without brackets. */
  readonly host: string;
  readonly port: number;
  readonly path: string;
}

/** The address to ask. Throws ConfigurationError for one that is not plain. */
export function checkedAddress(name: string, setting: string, text: string, keyed: boolean): WebAddress {
  const found = HIDDEN.test(text) ? undefined : parsed(text);
  const wrong = wrongForm(text, found) ?? wrongHost(text, found as WebAddress);
  if (wrong !== null) {
    const hint = `Set ${setting} to an address such as https://search.example.org.`;
    throw new ConfigurationError(`The address of ${name} ${wrong}.`, hint);
  }
  const address = found as WebAddress;
  if (keyed && !address.encrypted && !isThisMachine(address.host)) {
    throw new ConfigurationError(
      `The key for ${name} would go to ${address.host} unencrypted.`,
      `Let ${setting} begin with https://.`,
    );
  }
  return address;
}

export function isLocalhost(host: string): boolean {
  return host === "localhost" || host === "localhost.";
}

function isThisMachine(host: string): boolean {
  const address = addressOf(host);
  return address === undefined ? isLocalhost(host) : isLoopback(address);
}

function parsed(text: string): WebAddress | undefined {
  const [, scheme = "", authority = "", path = ""] = FORM.exec(text) ?? [];
  const [, given = "", port = ""] = AUTHORITY.exec(authority.slice(authority.lastIndexOf("@") + 1)) ?? [];
  const host = hostOf(given);
  if (scheme === "" || host === undefined || Number(port) > 65535) {
    return undefined;
  }
  const encrypted = scheme.toLowerCase() === "https";
  const usual = encrypted ? 443 : 80;
  return { encrypted, host, port: port === "" ? usual : Number(port), path: new URL(path || "/", "http://x").pathname };
}

function hostOf(given: string): string | undefined {
  if (given === "") {
    return undefined;
  }
  if (given.startsWith("[")) {
    const inside = given.slice(1, -1).toLowerCase();
    const [plain = ""] = inside.split("%", 1);
    return isIPv6(plain) || /^v[0-9a-f]+\..+$/.test(inside) ? inside : undefined;
  }
  const small = given.toLowerCase();
  // As it is written, where it can be: the usual reading would make an address of an odd number.
  return /^[\x21-\x7e]*$/.test(small) ? small : inAscii(small);
}

function inAscii(name: string): string | undefined {
  try {
    return new URL(`http://${name}/`).hostname;
  } catch {
    return undefined;
  }
}

function wrongForm(text: string, found: WebAddress | undefined): string | null {
  if (HIDDEN.test(text)) {
    return "holds a blank, a backslash or a hidden character";
  }
  if (found === undefined) {
    return "is no web address";
  }
  const [authority = ""] = text.slice(text.indexOf("://") + 3).split("/", 1);
  if (authority.includes("@")) {
    return "holds a user name or a password";
  }
  return /[?#]/.test(text) ? "holds a query or a fragment" : null;
}

function wrongHost(text: string, { host }: WebAddress): string | null {
  const address = addressOf(host);
  if (address !== undefined) {
    const shown = address.family === 6 ? new URL(`http://[${host}]/`).hostname.slice(1, -1) : host;
    return isNeverAsked(address) ? `is ${shown}, which is never asked` : null;
  }
  if (host.includes(":") || NUMBER_LAST.test(host)) {
    return `names a host, ${repr(host)}, that is an address in an unusual form`;
  }
  return NAME.test(host) && !text.includes("[") ? null : `names a host, ${repr(host)}, that is no name`;
}
