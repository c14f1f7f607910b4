// Push messages to this browser: subscribes at its push service, tells the server, and takes it back. A browser that is no
// longer listed, or that somebody else is signed in to, ends its subscription by itself.

import type { Api } from "./api";
import type { Host } from "./host";

const WORKER = "/page/sw.js";
/** The id of this browser in the server's list. */
const HERE = "push";
const BLOCKED =
  "This browser blocks notifications of this page. Open its settings for this site, set Notifications to Allow, and " +
  "turn this on again.";

/** Why this browser takes no push messages of this page; null where it may. */
export function pushRefusal(): string | null {
  if (!window.isSecureContext) return "This needs https, and this page came over plain http.";
  if ("serviceWorker" in navigator && "PushManager" in window) return null;
  return /iPhone|iPad/.test(navigator.userAgent)
    ? "First add Byleave to the Home Screen (Share, then Add to Home Screen). Open it from there and turn this on."
    : "This browser takes no push messages.";
}

/** The id under which this browser is notified; it may be listed no more. */
export const pushedHere = (host: Host): string | null => host.recall(HERE);

/** Only after a press: the browser asks the person. Returns why it could not be turned on; null when it is. */
export async function turnOnPush(host: Host, api: Api, key: string): Promise<string | null> {
  if ((await Notification.requestPermission()) !== "granted") return BLOCKED;
  await subscribe(host, api, key);
  return null;
}

async function subscribe(host: Host, api: Api, key: string): Promise<void> {
  await navigator.serviceWorker.register(WORKER, { scope: "/" });
  const { pushManager } = await navigator.serviceWorker.ready;
  const made = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  const { endpoint = "", keys } = made.toJSON();
  const device = await api.addDevice({ endpoint, p256dh: keys?.p256dh ?? "", auth: keys?.auth ?? "" });
  host.remember(HERE, device.id);
}

export async function turnOffPush(host: Host): Promise<void> {
  host.remember(HERE, null);
  await (await subscription())?.unsubscribe();
}

/** At the page's start: the subscription goes where it is listed no more, and is made anew where the server's key changed. */
export async function keepPush(host: Host, api: Api): Promise<void> {
  const here = pushedHere(host);
  if (here === null || pushRefusal() !== null) return;
  const { push_key, devices } = await api.notices();
  const found = await subscription();
  const listed = devices.some(({ id }) => id === here);
  if (listed && found && text(found.options.applicationServerKey) === push_key) return;
  await turnOffPush(host);
  if (listed && found) await subscribe(host, api, push_key);
}

async function subscription(): Promise<PushSubscription | null> {
  const worker = await navigator.serviceWorker.getRegistration("/");
  return (await worker?.pushManager.getSubscription()) ?? null;
}

function text(key: ArrayBuffer | null): string {
  const bytes = String.fromCharCode(...new Uint8Array(key ?? new ArrayBuffer(0)));
  return btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}
