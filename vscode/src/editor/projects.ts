// Which project of the server a folder belongs to: the one it had the last time, else the one the person picks, or a new
// one named after the folder. Asked once for each folder and server.

import type { Project } from "@protocol";
import * as vscode from "vscode";
import type { Api } from "../../../ui/src/api.js";
import { oneLine } from "../../../ui/src/text/visible.js";
import { listed } from "./notices.js";

export class Projects {
  readonly #memory: vscode.Memento;

  constructor(memory: vscode.Memento) {
    this.#memory = memory;
  }

  /** The project this folder had the last time, whether or not it is still there. */
  known(origin: string, folder: vscode.WorkspaceFolder): string | null {
    return this.#memory.get<string>(key(origin, folder)) ?? null;
  }

  /** Every folder that was ever connected: agents could change what is in them. */
  folders(): string[] {
    const uris = this.#memory.keys().flatMap((name) => /^project \S+ (file:.*)$/.exec(name)?.[1] ?? []);
    return uris.map((uri) => vscode.Uri.parse(uri).fsPath);
  }

  async forget(origin: string, folder: vscode.WorkspaceFolder): Promise<void> {
    await this.#memory.update(key(origin, folder), undefined);
  }

  /** The folder's project; null when the person chose none. Rejects with the api's problems. */
  async find(api: Api, origin: string, folder: vscode.WorkspaceFolder): Promise<Project | null> {
    const { projects } = await api.projects();
    const known = this.known(origin, folder);
    const found = projects.find((project) => project.project_id === known) ?? (await pick(api, projects, folder));
    if (found) await this.#memory.update(key(origin, folder), found.project_id);
    return found;
  }
}

async function pick(api: Api, projects: Project[], folder: vscode.WorkspaceFolder): Promise<Project | null> {
  if (projects.length === 0) return await api.createProject(folder.name);
  const made = { label: `$(add) New project "${listed(oneLine(folder.name))}"`, project: null };
  const items = projects.map((project) => ({
    label: listed(oneLine(project.name)),
    description: `since ${new Date(project.created_at).toLocaleDateString()}`,
    detail: listed(oneLine(project.project_id)),
    project,
  }));
  const isNamed = ({ project }: (typeof items)[number]) => project.name === folder.name;
  // One of this name is most likely the folder's: `byleave up` names it so.
  const [same, others] = [items.filter(isNamed), items.filter((item) => !isNamed(item))];
  const picked = await vscode.window.showQuickPick([...same, made, ...others], {
    title: `Byleave: which project is ${oneLine(folder.name)}?`,
    placeHolder: "Agents of the project will be able to work in this folder",
  });
  if (!picked) return null;
  return picked.project ?? (await api.createProject(folder.name));
}

function key(origin: string, folder: vscode.WorkspaceFolder): string {
  return `project ${origin} ${folder.uri.toString()}`;
}
