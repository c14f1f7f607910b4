// A client put together from settings: the one call the extension makes for a folder. The identity (a client id) and the
// journal are kept in one directory for each server, project and folder, because the journal must know every call that
// reached this machine and no others.

import { createHash, randomBytes } from "node:crypto";
import { realpathSync } from "node:fs";
import { join } from "node:path";
import type { FeedEvent } from "@protocol";
import { Gate, type GateRules, type LoadedPolicy, loadPolicy, type PolicyPlaces } from "../gate/index.js";
import { Journal } from "../tools/journal.js";
import { FileMemory } from "../tools/memory.js";
import { type Clock, type Log, NO_LOG, type Prompt, SYSTEM_CLOCK, type ToolSettings } from "../tools/ports.js";
import { ToolHandler } from "../tools/ToolHandler.js";
import { UndoIntents } from "../tools/undo_intents.js";
import { type OnUndone, Undoer } from "../tools/undoing.js";
import { Workspace } from "../tools/Workspace.js";
import type { WebSettings } from "../tools/web.js";
import { ServerApi } from "./api.js";
import { Connection, type ConnectionState } from "./connection.js";

const CLIENT_ID = /^client_[0-9a-f]{32}$/;

export interface WorkspaceConnection {
  readonly serverUrl: string;
  readonly token: string;
  readonly projectId: string;
  /** The folder that is the project's workspace. */
  readonly folder: string;
  /** Where this extension may keep files of its own. */
  readonly storage: string;
  readonly settings?: ToolSettings;
  readonly policyPlaces?: PolicyPlaces;
  readonly allowedCommands?: readonly string[];
  readonly prompt?: Prompt;
  readonly log?: Log;
  readonly clock?: Clock;
  readonly ripgrep?: string | false;
  readonly scanWorker?: string;
  /** Who searches the web, read anew for each search. */
  readonly web?: () => Promise<WebSettings>;
  readonly onState?: (state: ConnectionState) => void;
  readonly onEvent?: (number: number, event: FeedEvent) => void;
  /** Told of each call that was undone because the server asked. */
  readonly onUndone?: OnUndone;
  /** Told whenever what runs or waits has changed. */
  readonly onChange?: () => void;
}

export interface Connected {
  readonly connection: Connection;
  readonly handler: ToolHandler;
  readonly workspace: Workspace;
  readonly api: ServerApi;
  readonly rules: LoadedPolicy;
}

/** Put a client together; call `connection.run()`, and `connection.close()` at the end. */
export async function connectWorkspace(wanted: WorkspaceConnection): Promise<Connected> {
  const { folder, projectId, prompt, serverUrl, settings } = wanted;
  const log = wanted.log ?? NO_LOG;
  const root = realpathSync(folder);
  const rules = loadPolicy(root, wanted.policyPlaces ?? {});
  const told = [serverUrl.replace(/\/+$/, ""), projectId, root].join("\0");
  const directory = join(wanted.storage, "clients", createHash("sha256").update(told).digest("hex").slice(0, 24));
  const memory = new FileMemory(directory);
  try {
    const clientId = await identity(memory);
    const api = new ServerApi(serverUrl, wanted.token, clientId);
    const workspace = new Workspace(root, {
      policy: rules.policy,
      ...(settings === undefined ? {} : { settings }),
      ...(wanted.clock === undefined ? {} : { clock: wanted.clock }),
      ...(wanted.ripgrep === undefined ? {} : { ripgrep: wanted.ripgrep }),
      ...(wanted.scanWorker === undefined ? {} : { scanWorker: wanted.scanWorker }),
      ...(wanted.web === undefined ? {} : { web: wanted.web }),
      undo: { directory: join(directory, "undo"), memory },
    });
    const gateRules: GateRules = {
      policy: rules.policy,
      ...(wanted.allowedCommands === undefined ? {} : { allowedCommands: wanted.allowedCommands }),
    };
    const { clock, onChange } = wanted;
    const journal = await Journal.open(memory, log, clock);
    const gate = new Gate(gateRules);
    const handler = new ToolHandler({
      projectId,
      clientId,
      workspace,
      gate,
      journal,
      link: api,
      prompt,
      log,
      clock,
      onChange,
    });
    const forget = () => handler.forgetReads();
    workspace.undoing?.onChange(forget); // also where a person undoes here, without the server
    const intents = new UndoIntents(memory);
    const { onUndone } = wanted;
    const undoing = { projectId, clientId, desk: workspace.undoing, link: api, forget, intents, onUndone, log };
    const connection = new Connection({
      projectId,
      api,
      handler,
      undoer: new Undoer({ ...undoing, clock: clock ?? SYSTEM_CLOCK }),
      workspace,
      rules: rules.texts,
      log,
      clock,
      interactive: prompt !== undefined,
      ...(wanted.onState === undefined ? {} : { onState: wanted.onState }),
      ...(wanted.onEvent === undefined ? {} : { onEvent: wanted.onEvent }),
    });
    return { connection, handler, workspace, api, rules };
  } catch (error) {
    memory.close();
    throw error;
  }
}

async function identity(memory: FileMemory): Promise<string> {
  const known = memory.read("client_id");
  if (known !== undefined && CLIENT_ID.test(known)) {
    return known;
  }
  const made = `client_${randomBytes(16).toString("hex")}`;
  await memory.write("client_id", made, true);
  return made;
}
