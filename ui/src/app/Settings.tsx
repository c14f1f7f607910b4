// What belongs to this browser: how one is told that something waits.

import { useState } from "react";
import type { Api } from "../api";
import type { Alerts, Host } from "../host";
import { Sheet } from "../parts/Sheet";
import { PushSettings } from "./PushSettings";

interface Props {
  api: Api;
  host: Host;
  close: () => void;
}

export function Settings({ api, host, close }: Props) {
  return (
    <Sheet title="Settings" close={close}>
      {host.alerts && <AlertSwitches alerts={host.alerts} />}
      {host.kind === "browser" && <PushSettings api={api} host={host} />}
    </Sheet>
  );
}

/** Whether there is anything to set here. */
export const hasSettings = (host: Host): boolean => host.alerts !== undefined || host.kind === "browser";

function AlertSwitches({ alerts }: { alerts: Alerts }) {
  const [notifies, setNotifies] = useState(() => alerts.notifies());
  const [refusal, setRefusal] = useState(() => alerts.refusal());
  const [sounds, setSounds] = useState(() => alerts.sounds());
  return (
    <section className="app-alerts">
      <h3>When you look elsewhere</h3>
      <label>
        <input
          type="checkbox"
          checked={notifies}
          onChange={async (event) => {
            const on = event.target.checked;
            const said = await alerts.setNotifies(on);
            setNotifies(on && said === null);
            setRefusal(said);
          }}
        />
        Show a notification
      </label>
      {refusal !== null && (
        <p className="app-hint" role="alert">
          {refusal}
        </p>
      )}
      <label>
        <input
          type="checkbox"
          checked={sounds}
          onChange={(event) => {
            alerts.setSounds(event.target.checked);
            setSounds(event.target.checked);
          }}
        />
        Play a sound
      </label>
    </section>
  );
}
