// What the person and the page do: open a project or a session, load older entries, send, stop, answer. The one place
// that joins the server's routes, the feed and what is known. It decides nothing about approvals.

import type { AgentMode, FeedEvent } from "@protocol";
import { Api, insist, Problem, passing } from "../api";
import { Feed, type Wake } from "../feed";
import type { Host } from "../host";
import { Again } from "./again";
import { draftKey, withReturned } from "./drafts";
import { fromExecution } from "./entries";
import { type ChatEntry, isElsewhere, type Settled } from "./model";
import { Outbox } from "./outbox";
import { Reading } from "./reading";
import { Store } from "./store";

/** The header knows whole seconds only; less than two are no difference. */
const CLOCK_SLACK_MS = 2000;
const ARRIVED = "This message had arrived already, so it was not sent again.";
const HERE = "It is in the field again. See whether it arrived before you send it.";
const THERE = "It is kept in the conversation you wrote it in.";
const ANEW = "It is in the field of a new conversation again. See whether it arrived before you send it.";
/** Who works on a message that names nobody. */
const USUAL_AGENT = "chat";

export class Chat {
  readonly store = new Store();
  readonly api: Api;
  readonly host: Host;
  readonly #wake: Wake | undefined;
  #feed: Feed | null = null;
  /** Ends the wait for a stream that is not wanted any more: it would never answer. */
  #unlisten: () => void = () => {};
  readonly #outbox: Outbox;
  #count = 0;
  #closed = false;
  #posting = 0;
  /** The project was opened just now, and the person has not chosen a conversation yet. */
  #arriving = false;
  readonly #starting = new Again();
  readonly #reading: Reading;

  constructor(host: Host, wake?: Wake) {
    this.host = host;
    this.#wake = wake;
    this.api = new Api(
      host,
      (time) => this.#heardTime(time),
      () => this.#signedOut(),
    );
    this.#outbox = new Outbox(host, this.api);
    this.#reading = new Reading(this.api, this.store, (error) => this.complain(error));
    this.store.onEvent = (event) => this.#beside(event);
    host.onSignedOut = () => this.#signedOut();
  }

  /** The server's clock, in milliseconds. */
  readonly now = (): number => Date.now() + this.store.get().serverAhead;

  /** Begins: who is asking, which project, which session. `wanted` undefined: the one last open, or the newest. */
  async start(wantedProject: string | null, wanted: string | null | undefined): Promise<void> {
    try {
      const [me, { projects }] = await Promise.all([this.api.me(), this.api.projects()]);
      const known = projects.length > 0 ? projects : [await this.api.firstProject("default")];
      this.#meet(me.user_id);
      this.store.do({ type: "me", me, projects: known });
      const remembered = wantedProject ?? this.host.recall("project");
      const project = known.find((each) => each.project_id === remembered) ?? known[0];
      if (project) await this.openProject(project.project_id, wanted);
    } catch (error) {
      this.store.do({ type: "record-failed", sessionId: null });
      if (!passing(error) || this.#closed) return this.complain(error);
      // The server is not there yet, or not any more: it is tried again until it is.
      this.store.do({ type: "link", link: "down" });
      this.#starting.later(() => void this.start(wantedProject, wanted));
    }
  }

  /** What somebody else wrote and opened in this browser is not for this person. */
  #meet(userId: string): void {
    const before = this.host.recall("user");
    if (before !== null && before !== userId) this.host.forget?.();
    this.host.remember("user", userId);
  }

  async openProject(projectId: string, wanted?: string | null): Promise<void> {
    this.#feed?.end();
    this.#unlisten();
    this.#reading.turn(false);
    this.store.forget();
    this.host.remember("project", projectId);
    this.#recoverStranded(projectId, null); // before its field is there
    this.store.do({ type: "project", projectId });
    await this.store.holding(async () => {
      // Listening begins before the record is read, so that nothing falls between the two.
      await this.#listen(projectId);
      // The person chose another one meanwhile: nothing of this one is to be opened in it.
      if (this.store.get().projectId !== projectId) return;
      this.#arriving = true;
      await Promise.all([this.#reading.around(projectId), this.#openWanted(projectId, wanted)]);
    });
  }

  /** Opens the project of a question that waits. False, and said so, when it does not wait any more. */
  async openQuestion(approvalId: string): Promise<boolean> {
    try {
      const { approvals } = await this.api.approvals();
      const found = approvals.find((each) => each.id === approvalId);
      if (!found) throw new Problem("This request was answered already, or it expired.", 0);
      if (found.project_id !== this.store.get().projectId) {
        await this.openProject(found.project_id, found.session_id ?? undefined);
      }
      return true;
    } catch (error) {
      this.complain(error);
      return false;
    }
  }

  async openSession(sessionId: string | null): Promise<void> {
    const { projectId } = this.store.get();
    if (projectId === null) return;
    this.#recoverStranded(projectId, sessionId);
    this.store.do({ type: "opening", sessionId });
    this.host.remember(`session ${projectId}`, sessionId);
    this.#reading.turn(true);
    if (sessionId !== null) await this.#reading.session(projectId, sessionId);
    void this.#sendInterrupted(projectId, sessionId, this.#arriving);
    this.#arriving = false;
  }

  /** `asked`: the person wants it now; else it waits for its turn after a failure. */
  readonly loadOlder = (asked = false): Promise<void> => this.#reading.older(asked);
  /** Reads at once what could not be read. */
  readonly tryAgain = (): void => this.#reading.tryAgain();

  /** Sends a message. Rejects with the reason when it was not accepted: the composer keeps it. */
  async post(content: string): Promise<void> {
    const { projectId, sessionId, agent, agents, modes, model, entries, sessions } = this.store.get();
    if (projectId === null) throw new Problem("No project is open.", 0);
    this.#count += 1;
    const entry: ChatEntry = {
      kind: "message",
      id: `local ${this.#count}`,
      role: "user",
      content,
      runId: null,
      at: this.now(),
      pending: true,
    };
    this.store.do({ type: "posting", entry });
    this.#posting += 1;
    try {
      const mode = modes[agent] ?? null;
      const usual = agents.some((each) => each.name === USUAL_AGENT && each.name === agent && each.mode === mode);
      const chosen = agents.find((each) => each.name === agent)?.models.find((each) => each === model);
      const named = agent ? { agent, mode, ...(chosen !== undefined && { model: chosen }) } : {};
      const accepted = await this.#outbox.send(projectId, { content, session_id: sessionId, ...named }, usual);
      // It is the one whose answer was lost: a person who meant another one must know that there is none.
      const known = entries.some((each) => each.kind === "message" && each.id === accepted.message_id);
      const begunBefore = sessionId === null && sessions.some((each) => each.session_id === accepted.session_id);
      if (known || begunBefore) this.complain(new Problem(ARRIVED, 0, "To send it a second time, send it once more."));
      const now = this.store.get();
      // The person went elsewhere meanwhile: the record has it.
      if (now.projectId !== projectId || now.sessionId !== sessionId) return;
      this.store.do({ type: "posted", localId: entry.id, accepted });
      if (sessionId === null) await this.#begun(accepted.session_id);
    } catch (error) {
      this.store.do({ type: "post-failed", localId: entry.id });
      throw error;
    } finally {
      this.#posting -= 1;
    }
  }

  async stop(): Promise<void> {
    const { projectId, runId } = this.store.get();
    if (projectId === null || runId === null) return;
    try {
      await this.api.stopRun(projectId, runId);
    } catch (error) {
      // It was over already.
      if (error instanceof Problem && (error.status === 409 || error.status === 404)) {
        this.store.do({ type: "run-over", runId });
      } else this.complain(error);
    }
  }

  readonly decided = (settled: Settled): void => this.store.do({ type: "settled", settled });
  readonly dismiss = (approvalId: string): void => this.store.do({ type: "dismissed", approvalId });

  pickAgent(agent: string): void {
    this.store.do({ type: "agent", agent });
  }

  pickModel(model: string): void {
    this.store.do({ type: "model", model });
  }

  async renameSession(sessionId: string, title: string): Promise<void> {
    const { projectId } = this.store.get();
    if (projectId === null) return;
    const { title: kept } = await this.api.renameSession(projectId, sessionId, title);
    this.store.do({ type: "session-changed", sessionId, title: kept, deleted: false });
  }

  async deleteSession(sessionId: string): Promise<void> {
    const { projectId } = this.store.get();
    if (projectId === null) return;
    await this.api.deleteSession(projectId, sessionId);
    this.host.remember(draftKey(projectId, sessionId), null);
    this.store.do({ type: "session-changed", sessionId, title: "", deleted: true });
  }

  /** Stops whatever works in a conversation, also one that is not open. */
  async stopWork(sessionId: string): Promise<void> {
    const { projectId } = this.store.get();
    if (projectId === null) return;
    const { runs } = await this.api.runs(projectId, sessionId, 20);
    const open = runs.filter((run) => run.state !== "done" && run.state !== "failed");
    await Promise.all(open.map((run) => this.api.stopRun(projectId, run.run_id)));
  }

  setMode(agent: string, mode: AgentMode): void {
    this.store.do({ type: "mode", agent, mode });
  }

  async signOut(): Promise<void> {
    try {
      await this.host.signOut?.();
      this.#signedOut();
    } catch {
      this.complain(
        new Problem("You are still signed in: the server did not confirm that it ended.", 0, "Try again in a moment."),
      );
    }
  }

  readonly complain = (error: unknown): void => {
    if (error instanceof Problem && error.status === 401) return; // the screen says it
    const text = error instanceof Error ? error.message : String(error);
    this.#count += 1;
    const hint = error instanceof Problem ? error.hint : null;
    this.store.do({ type: "notice", notice: { id: this.#count, text, hint } });
  };

  close(): void {
    this.#closed = true;
    this.#starting.reset();
    this.#reading.end();
    this.#feed?.end();
  }

  /** Waits for the first answer of the stream, good or bad, so that the record is read after listening began. */
  #listen(projectId: string): Promise<void> {
    return new Promise((resolve) => {
      if (this.#closed) return resolve();
      this.#unlisten = resolve;
      this.#feed = new Feed(
        this.host,
        projectId,
        {
          event: (event) => this.store.hear(event),
          up: () => {
            this.store.do({ type: "link", link: "up" });
            this.#reading.tryAgain();
            resolve();
          },
          down: () => {
            this.store.do({ type: "link", link: "down" });
            resolve();
          },
          signedOut: () => {
            this.#signedOut();
            resolve();
          },
          gap: () => void this.#reading.everything(projectId),
        },
        this.#wake,
      );
    });
  }

  async #openWanted(projectId: string, wanted: string | null | undefined): Promise<void> {
    // With a session known by its name the list need not be waited for.
    if (wanted === null) return this.#openNone(projectId);
    const remembered = wanted ?? this.host.recall(`session ${projectId}`);
    if (wanted) {
      void this.#reading.sessions(projectId);
      return this.openSession(wanted);
    }
    const sessions = (await this.#reading.sessions(projectId)) ?? [];
    // The person chose another project meanwhile: its sessions are not these.
    if (this.store.get().projectId !== projectId) return;
    // What the person writes next belongs to the chat: the calls of an agent elsewhere open only when they are chosen.
    const ours = sessions.filter((each) => !isElsewhere(each.session_id));
    const session = ours.find((each) => each.session_id === remembered) ?? ours[0];
    await (session ? this.openSession(session.session_id) : this.#openNone(projectId));
  }

  async #openNone(projectId: string): Promise<void> {
    await Promise.all([this.openSession(null), this.#reading.sessions(projectId), this.#reading.approvals(projectId)]);
  }

  /** A new session has a title and events of its first moments that were not ours yet: the record has both. */
  async #begun(sessionId: string): Promise<void> {
    const { projectId } = this.store.get();
    if (projectId) await Promise.all([this.openSession(sessionId), this.#reading.sessions(projectId)]);
  }

  /** What was sent when the page was left, and may have been lost on the way. */
  async #sendInterrupted(projectId: string, sessionId: string | null, arriving: boolean): Promise<void> {
    const left = this.#posting > 0 ? null : this.#outbox.interrupted(projectId, sessionId);
    if (!left) return;
    try {
      const accepted = await this.#outbox.send(projectId, left);
      // It may be another tab's: who began a conversation of their own meanwhile stays in it.
      if (arriving && sessionId === null && this.#shows(projectId, null)) await this.#begun(accepted.session_id);
    } catch (error) {
      const shown = this.#shows(projectId, sessionId);
      if (shown) this.store.do({ type: "returned", returned: { projectId, sessionId, text: left.content } });
      else this.#keepDraft(projectId, sessionId, left.content);
      const { message, status } = error instanceof Problem ? error : new Problem(String(error), 0);
      this.complain(new Problem(`A message you sent before did not go out: ${message}`, status, shown ? HERE : THERE));
    }
  }

  /** What was sent so long ago that nobody expects it to go out by itself. */
  #recoverStranded(projectId: string, sessionId: string | null): void {
    const text = this.#outbox.stranded(projectId, sessionId);
    if (text === null) return;
    this.#keepDraft(projectId, sessionId, text);
    this.complain(
      new Problem("A message you sent before this page was closed got no answer.", 0, sessionId ? HERE : ANEW),
    );
  }

  #keepDraft(projectId: string, sessionId: string | null, text: string): void {
    const key = draftKey(projectId, sessionId);
    this.host.remember(key, withReturned(text, this.host.recall(key)));
  }

  #shows(projectId: string, sessionId: string | null): boolean {
    const now = this.store.get();
    return now.projectId === projectId && now.sessionId === sessionId;
  }

  /** What an event asks for beside the conversation. */
  #beside(event: FeedEvent): void {
    const { projectId, sessions, sessionId, entries } = this.store.get();
    if (projectId === null) return;
    if (event.kind === "chat.message" && !sessions.some((each) => each.session_id === event.session_id)) {
      void this.#reading.sessions(projectId);
    }
    if (event.kind === "tool.finished" && event.session_id === sessionId) {
      const known = entries.some((entry) => entry.kind === "tool" && entry.id === event.tool_id);
      if (!known) void this.#quietly(this.#fetchCall(event.tool_id, sessionId));
    }
  }

  async #fetchCall(toolId: string, sessionId: string): Promise<void> {
    const call = fromExecution(await insist(() => this.api.execution(toolId)));
    this.store.do({ type: "record", sessionId, entries: [call], older: this.store.get().older, fresh: false });
  }

  /** What is not there yet, or not open to this token, is no reason to stop: it stays empty, and is said. */
  async #quietly(work: Promise<unknown>): Promise<void> {
    try {
      await work;
    } catch (error) {
      this.complain(error);
    }
  }

  #heardTime(time: number): void {
    const ahead = time - Date.now();
    const before = this.store.get().serverAhead;
    const next = Math.abs(ahead) < CLOCK_SLACK_MS ? 0 : ahead;
    if (Math.abs(next - before) >= CLOCK_SLACK_MS || next === 0) this.store.do({ type: "clock", ahead: next });
  }

  #signedOut(): void {
    this.#starting.reset();
    this.#reading.turn(false);
    this.#feed?.end();
    this.#feed = null;
    this.store.forget();
    this.store.do({ type: "signed-out" });
  }
}
