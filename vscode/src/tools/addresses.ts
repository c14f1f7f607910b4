// Where an address of the internet leads: to the public, to this machine or its network, or to a place that is never
// asked (link-local, and where clouds keep credentials). Judged on numbers, also on an IPv4 address inside an IPv6 one. The
// rules are the Python client's; shared vectors hold both against each other. Nothing is looked up here.

import { isIPv4, isIPv6 } from "node:net";

export interface Address {
  readonly family: 4 | 6;
  readonly value: bigint;
}

interface Network extends Address {
  readonly bits: number;
}

const LAST_32 = 0xffffffffn;

/** An address in its usual form; undefined for anything else. A zone is none: it names a link. */
export function addressOf(text: string): Address | undefined {
  if (isIPv4(text)) {
    return { family: 4, value: number4(text) };
  }
  return isIPv6(text) && !text.includes("%") ? { family: 6, value: number6(text) } : undefined;
}

function number4(text: string): bigint {
  return text.split(".").reduce((sum, part) => sum * 256n + BigInt(part), 0n);
}

function number6(text: string): bigint {
  const groups = (part: string): bigint[] =>
    part === ""
      ? []
      : part.split(":").flatMap((one) => {
          const low = one.includes(".") ? number4(one) : undefined;
          return low === undefined ? [BigInt(`0x${one}`)] : [low >> 16n, low & 0xffffn];
        });
  const [before = "", after] = text.split("::");
  const head = groups(before);
  const tail = after === undefined ? [] : groups(after);
  const zeros = new Array<bigint>(8 - head.length - tail.length).fill(0n);
  return [...head, ...zeros, ...tail].reduce((sum, group) => (sum << 16n) + group, 0n);
}

function network(text: string): Network {
  const [name = "", bits = ""] = text.split("/");
  return { ...(addressOf(name) as Address), bits: Number(bits) };
}

function contains({ bits, family, value }: Network, address: Address): boolean {
  const rest = BigInt((family === 4 ? 32 : 128) - bits);
  return address.family === family && address.value >> rest === value >> rest;
}

function networks(text: string): Network[] {
  return text.trim().split(/\s+/).map(network);
}

const NEVER = networks(`
  169.254.0.0/16 fe80::/10
  100.100.100.200/32 168.63.129.16/32 192.0.0.192/32 fd00:42::42/128 fd00:ec2::/32 fd20:ce::254/128
`);
const NOT_PUBLIC = networks(`
  0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24
  192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
  2001::/23 2001:db8::/32 2002::/16 3fff::/20
`);
const PUBLIC_6 = network("2000::/3");
const MAPPED = network("::ffff:0:0/96");
const NAT64 = network("64:ff9b::/96");
const SIX_TO_FOUR = network("2002::/16");
const TEREDO = network("2001::/32");
/** Prefixes before an IPv4 address in the last 32 bits: compatible, mapped, translated, NAT64. */
const CARRIERS = [network("::/96"), MAPPED, network("::ffff:0:0:0/96"), NAT64];

/** Link-local, or where a cloud keeps credentials; also inside an IPv6 address. */
export function isNeverAsked(address: Address): boolean {
  return [address, ...carried(address)].some((one) => NEVER.some((never) => contains(never, one)));
}

/** Whether it is an address of the public internet. Tunnels are not: nobody knows where they end. */
export function isPublic(address: Address): boolean {
  if (contains(MAPPED, address) || contains(NAT64, address)) {
    return isPublic(lastFour(address.value));
  }
  return (address.family === 4 || contains(PUBLIC_6, address)) && !NOT_PUBLIC.some((one) => contains(one, address));
}

/** Whether it is this machine. */
export function isLoopback(address: Address): boolean {
  const plain = contains(MAPPED, address) ? lastFour(address.value) : address;
  return plain.family === 4 ? plain.value >> 24n === 127n : plain.value === 1n;
}

/** Where on this machine it leads, in its usual form; undefined when it is elsewhere. "Any" is here, whoever connects. */
export function loopbackNumber(address: Address): string | undefined {
  const { family, value } = contains(MAPPED, address) ? lastFour(address.value) : address;
  if (family === 6) {
    return value <= 1n ? "::1" : undefined;
  }
  if (value === 0n) {
    return "127.0.0.1";
  }
  return value >> 24n === 127n ? [24n, 16n, 8n, 0n].map((bits) => (value >> bits) & 255n).join(".") : undefined;
}

/** The IPv4 addresses that an IPv6 address stands for, or leads to. */
function carried(address: Address): Address[] {
  const { value } = address;
  const found: Address[] = [];
  if (contains(SIX_TO_FOUR, address)) {
    found.push(lastFour(value >> 80n));
  }
  if (contains(TEREDO, address)) {
    found.push(lastFour(value >> 64n), lastFour(~value & LAST_32));
  }
  if (CARRIERS.some((carrier) => contains(carrier, address))) {
    found.push(lastFour(value));
  }
  return found;
}

function lastFour(value: bigint): Address {
  return { family: 4, value: value & LAST_32 };
}
