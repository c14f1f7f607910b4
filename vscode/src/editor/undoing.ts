// Undoing from the editor: through the server while it is there, so that its rules count and its record has it; else here
// alone, as `byleave undo` does it without a server. Either way it is this machine that acts, and only as it was shown.

import type { UndoPlan } from "@protocol";
import { type Api, Problem } from "../../../ui/src/api.js";
import { oneLine } from "../../../ui/src/text/visible.js";
import type { UndoDesk } from "../tools/undo_desk.js";
import { changedSince } from "./notices.js";

const WITHOUT = "The server could not be told, so its record does not have it.";

const NOTHING = "Nothing to do: everything is already as it was before this call.";

export interface Undone {
  /** What to tell the person. */
  readonly message: string;
  /** Under this name it can be taken back; null: nothing was done. */
  readonly undoId: string | null;
}

export class EditorUndo {
  readonly #desk: Pick<UndoDesk, "look" | "carryOut">;
  readonly #api: Pick<Api, "undo" | "undoPlan">;
  readonly #connected: () => boolean;
  /** Calls whose undo was asked for here and is not answered, and as what it was carried out meanwhile. */
  readonly #asking = new Map<string, string | null>();

  /** `connected`: whether the server has this machine on its list now. */
  constructor(
    desk: Pick<UndoDesk, "look" | "carryOut">,
    api: Pick<Api, "undo" | "undoPlan">,
    connected: () => boolean,
  ) {
    this.#desk = desk;
    this.#api = api;
    this.#connected = connected;
  }

  /** What undoing a call would do now. */
  look(toolId: string): Promise<UndoPlan> {
    return this.#through(
      () => this.#api.undoPlan(toolId),
      () => this.#desk.look(toolId),
    );
  }

  /** Undo a call as it was shown. */
  async undo(toolId: string, plan: string, partial: boolean): Promise<Undone> {
    this.#asking.set(toolId, null);
    try {
      const { message, undoId } = await this.#undo(toolId, plan, partial);
      return { message, undoId: undoId ?? this.#asking.get(toolId) ?? null };
    } catch (error) {
      // Its answer was lost, or came too late; it was done all the same.
      const undoId = this.#asking.get(toolId) ?? null;
      if (undoId === null) throw error;
      return { message: "Undone.", undoId };
    } finally {
      this.#asking.delete(toolId);
    }
  }

  /** Told of what was carried out here: whether it was asked for here and is not answered yet. Then the answer tells it. */
  isAsking(toolId: string, undoId: string): boolean {
    const asking = this.#asking.has(toolId);
    if (asking) this.#asking.set(toolId, undoId);
    return asking;
  }

  #undo(toolId: string, plan: string, partial: boolean): Promise<Undone> {
    return this.#through(
      async () => {
        const { message, undo_id: undoId } = await this.#api.undo(toolId, { plan, partial });
        return { message, undoId };
      },
      async () => {
        const { undoId } = await this.#desk.carryOut(toolId, plan, partial, () => true);
        return { message: undoId === null ? NOTHING : `Undone. ${WITHOUT}`, undoId };
      },
    );
  }

  /** Undo an undo. Only this machine knows of it. */
  async bringBack(undoId: string): Promise<string> {
    const { conflicts = [], lost = {}, plan } = await this.#desk.look(undoId);
    if (conflicts.length > 0) {
      return `Nothing was brought back: ${changedSince(conflicts, "since the undo")}. What you changed is yours to merge.`;
    }
    const [gone] = Object.entries(lost);
    if (gone !== undefined) return `Nothing was brought back: ${oneLine(gone[0])} cannot be (${oneLine(gone[1])}).`;
    await this.#desk.carryOut(undoId, plan, false, () => true);
    return "Brought back: it is as it was before the undo.";
  }

  async #through<T>(asked: () => Promise<T>, here: () => Promise<T>): Promise<T> {
    if (!this.#connected()) return here();
    try {
      return await asked();
    } catch (error) {
      // It cannot be reached after all, or knows nothing of a call that ran here.
      if (error instanceof Problem && (error.status === 0 || error.status === 404)) return here();
      throw error;
    }
  }
}
