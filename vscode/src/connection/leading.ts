// Where the address of a server leads: to this machine, and then by number, or elsewhere. Any name can be given to a loopback
// address (a hosts file does it, and some systems do it with their own name), so a name is looked up, and one that leads here
// counts as what it leads to. Nothing is sent, and nothing is remembered: the next time it may lead elsewhere.

import { lookup as ask } from "node:dns/promises";
import { isIP } from "node:net";
import { loopbackOf } from "../host/address.js";
import { addressOf, loopbackNumber } from "../tools/addresses.js";

/** All numbers of a name; rejects where it is not known. */
export type Lookup = (name: string) => Promise<readonly string[]>;

export const SYSTEM_LOOKUP: Lookup = async (name) => (await ask(name, { all: true })).map(({ address }) => address);

/** Where a server of this machine may stand, the first to be tried first. */
export interface Places {
  readonly hosts: readonly string[];
  /** As what it is spoken to; undefined: by its number. */
  readonly name: string | undefined;
}

/** The places of this machine that an origin stands for; undefined when it is elsewhere. Rejects when it is called off. */
export async function placesOf(origin: string, lookup: Lookup, signal?: AbortSignal): Promise<Places | undefined> {
  const here = loopbackOf(origin);
  if (here.length > 0) return { hosts: here, name: undefined };
  const { host, hostname } = new URL(origin);
  if (isIP(hostname.replace(/^\[|\]$/g, "")) !== 0) return undefined;
  // Not known here: a proxy may know it, and this machine is not meant.
  const hosts = await unlessAborted(
    lookup(hostname).catch((): string[] => []),
    signal,
  );
  // Also its other numbers: a name with one that leads here is this machine's.
  return hosts.some(numberHere)
    ? { hosts: hosts.map((number) => numberHere(number) ?? number), name: host }
    : undefined;
}

/** Where on this machine a number leads, in its usual form; undefined when it is elsewhere. */
function numberHere(number: string): string | undefined {
  const address = addressOf(number);
  return address && loopbackNumber(address);
}

function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    const leave = () => reject(signal?.reason as Error);
    signal?.addEventListener("abort", leave, { once: true });
    if (signal?.aborted) leave();
    void work.then(resolve, reject).finally(() => signal?.removeEventListener("abort", leave));
  });
}
