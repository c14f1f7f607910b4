// Push messages, in the settings: to this browser, to which others, and a test of all ways.

import type { Notifications } from "@protocol";
import { useEffect, useState } from "react";
import type { Api } from "../api";
import { told } from "../cards/told";
import type { Host } from "../host";
import { pushedHere, pushRefusal, turnOffPush, turnOnPush } from "../push";
import { visible } from "../text/visible";
import { span } from "../text/words";

export function PushSettings({ api, host }: { api: Api; host: Host }) {
  const [found, setFound] = useState<Notifications | null>(null);
  const [said, setSaid] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [unable] = useState(pushRefusal);
  const here = found?.devices.find(({ id }) => id === pushedHere(host));
  /** One thing at a time, and the list is read again after it. */
  const act = async (work: () => Promise<string | null>) => {
    setBusy(true);
    setSaid(null);
    try {
      setSaid(await work());
    } catch (error) {
      setSaid(told(error));
    }
    await api.notices().then(setFound, (error) => setSaid(told(error)));
    setBusy(false);
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: read once, when it opens.
  useEffect(() => void act(async () => null), []);
  const remove = async (id: string) => {
    if (id === here?.id) await turnOffPush(host);
    await api.removeDevice(id);
    return null;
  };
  return (
    <section className="app-alerts">
      <h3>When Byleave is closed</h3>
      <label>
        <input
          type="checkbox"
          disabled={busy || found === null || unable !== null}
          checked={here !== undefined}
          onChange={() => act(() => (here ? remove(here.id) : turnOnPush(host, api, found?.push_key ?? "")))}
        />
        Notify this device
      </label>
      {found && (
        <p className="app-muted">
          Sent when something has waited {span(found.after_seconds)} without an answer
          {found.webhook ? ", and to this server's webhook." : "."}
        </p>
      )}
      {unable !== null && <p className="app-hint">{unable}</p>}
      {found && found.devices.length > 0 && (
        <ul className="app-devices">
          {found.devices.map((device) => (
            <li key={device.id}>
              <span>
                <bdi>{visible(device.name)}</bdi>
                {device === here && " (this device)"}
              </span>
              <button
                type="button"
                className="app-plain"
                disabled={busy}
                aria-label={`Remove ${visible(device.name)}`}
                onClick={() => act(() => remove(device.id))}
              >
                Remove
              </button>
            </li>
          ))}
        </ul>
      )}
      {found && (found.webhook || found.devices.length > 0) && (
        <button type="button" className="app-button" disabled={busy} onClick={() => act(() => sent(api))}>
          Send a test
        </button>
      )}
      {said !== null && (
        <p className="app-hint" role="status">
          {said}
        </p>
      )}
    </section>
  );
}

async function sent(api: Api): Promise<string> {
  const { outcomes } = await api.testNotices();
  return outcomes.map(({ to, detail }) => `${visible(to)}: ${visible(detail ?? "sent.")}`).join(" ");
}
