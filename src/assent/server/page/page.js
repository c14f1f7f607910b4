// The chat page: one project's feed, one conversation of it, and what waits for a decision in any of them.
// What came from elsewhere goes in by textContent alone. The record is the truth: a reload asks the server for it.

import { drawDetails, drawEffects } from "/page/effects.js";
import { draw as drawGrants, grantChanged, grantTexts, grantsIn, setGrants } from "/page/grants.js";
import { ask, askIn, settle, settleAll } from "/page/questions.js";
import { callSummary, element, letBy, outcome, prose, resultText, shownValue, span, visible } from "/page/words.js";

const $ = (id) => document.getElementById(id);
const EXAMPLES = ["read package.json and tell me the version", "list src", "write notes.md: buy milk"];
const state = { project: null, session: null, run: null, tools: new Map(), texts: new Map(), messages: new Set() };
const feed = { source: null, last: null, tries: 0, retry: null, holding: 0, held: [] };
let serverAhead = 0;

// Talking to the server

async function api(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw problem("The server cannot be reached.", "see whether `assent up` or `assent serve` still runs", 0);
  }
  const date = Date.parse(answer.headers.get("Date") || "");
  // The header knows whole seconds only; less than two are no difference.
  if (date) serverAhead = Math.abs(date - Date.now()) < 2000 ? 0 : date - Date.now();
  if (answer.status === 204) return null;
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw problem(told.detail || `The server answered ${answer.status}.`, told.hint, answer.status);
  return told;
}

function problem(message, hint, status) {
  return Object.assign(new Error(message), { hint, status });
}

const projectPath = (rest) => `/my/projects/${encodeURIComponent(state.project)}/${rest}`;

// The conversation

function say(entry) {
  const conversation = $("conversation");
  const intro = conversation.querySelector(".intro");
  if (intro) intro.remove();
  conversation.append(entry);
  follow();
  return entry;
}

// The newest stays in sight, also when a question takes room, unless the person scrolled up to read.
let following = true;
let lastTop = 0;

function follow() {
  if (following) toEnd();
}

function toEnd() {
  following = true;
  $("conversation").scrollTop = $("conversation").scrollHeight;
}

$("conversation").addEventListener("scroll", () => {
  const { scrollHeight, scrollTop, clientHeight } = $("conversation");
  if (scrollHeight - scrollTop - clientHeight < 40) following = true;
  else if (scrollTop < lastTop) following = false; // only a person goes up
  lastTop = scrollTop;
});
new ResizeObserver(follow).observe($("conversation"));

function sayMessage(role, content, id) {
  if (state.messages.has(id)) return;
  state.messages.add(id);
  const entry = element("div", `entry ${role}`);
  entry.append(element("span", "who", role === "user" ? "You" : "Agent"), prose(content));
  say(entry);
}

// What happened beside the conversation.
function remark(text) {
  say(element("div", "entry remark", text));
}

function complain(error) {
  if (error.status === 401) return signedOut();
  const entry = element("div", "entry error", error.message);
  if (error.hint) entry.append(element("div", "hint", `hint: ${error.hint}`));
  entry.setAttribute("role", "alert");
  say(entry);
}

function introduce() {
  const intro = element("div", "entry intro");
  intro.append(element("p", "", "Ask the agent for something. It works in one directory of your machine, and you are asked here before anything changes. For example:"));
  for (const example of EXAMPLES) {
    const button = element("button", "example", example);
    button.type = "button";
    button.addEventListener("click", () => {
      $("message").value = example;
      $("message").focus();
    });
    intro.append(button);
  }
  $("conversation").append(intro);
}

// Tool calls

function toolCard(call) {
  const id = call.tool_id || call.id;
  if (state.tools.has(id)) return state.tools.get(id);
  const card = element("details", "entry tool");
  const title = element("summary");
  const ending = element("span", "ending");
  const by = element("span", "by");
  const trouble = element("div", "trouble");
  title.append(
    element("span", `risk ${call.risk_level}`, call.risk_level),
    element("strong", "", visible(call.tool_name)),
    element("span", "call", callSummary(call.tool_name, call.tool_params)),
    ending,
    by,
  );
  const params = element("pre", "", shownValue(call.tool_params));
  const output = element("pre");
  const effects = element("div", "effects");
  const details = element("div");
  card.append(title, element("div", "label", "Parameters"), params, element("div", "label", "Result"), output, details);
  const tool = { card, title, ending, by, trouble, output, effects, details, call };
  title.append(trouble, effects);
  state.tools.set(id, tool);
  say(card);
  mark(tool, call.status || "PENDING");
  return tool;
}

function mark(tool, status, errorType, milliseconds) {
  tool.ending.textContent = outcome(status, errorType, milliseconds);
  tool.card.classList.toggle("bad", ["REJECTED", "TIMEOUT", "FAILED"].includes(status));
}

function markById(id, status) {
  const tool = state.tools.get(id);
  if (tool) mark(tool, status);
}

function finish(tool, end) {
  mark(tool, end.status, end.error_type, end.execution_time_ms);
  if (end.approved_by && tool.call.risk_level !== "LOW") tool.by.textContent = letBy(end.approved_by, end.user_id, grantTexts());
  if (end.error) tool.trouble.textContent = visible(end.error);
  const text = resultText(tool.call.tool_name, end.result) || (end.error ? "none" : "");
  tool.output.textContent = end.result_shortened ? `${text}\n(shortened here; the record has all of it)` : text;
  if (end.result) {
    drawEffects(tool.effects, end.result);
    drawDetails(tool.details, end.result);
  }
  follow();
}

function outputOf(event) {
  const tool = state.tools.get(event.tool_id);
  if (!tool) return;
  tool.card.open = true;
  tool.output.append(visible(event.text));
  follow();
}

// The feed

function working(run) {
  state.run = run;
  $("stop").hidden = run === null;
  $("send").textContent = run === null ? "Send" : "Working…";
  $("send").disabled = run !== null;
}

const inConversation = {
  "chat.message": (event) => {
    const streamed = state.texts.get(event.run_id);
    if (event.role === "agent" && streamed) {
      streamed.remove();
      state.texts.delete(event.run_id);
    }
    sayMessage(event.role, event.content, event.message_id);
  },
  "chat.text": (event) => {
    if (!state.texts.has(event.run_id)) state.texts.set(event.run_id, say(element("div", "entry agent")));
    state.texts.get(event.run_id).append(event.text);
    follow();
  },
  "chat.run": (event) => {
    const over = event.state === "DONE" || event.state === "FAILED";
    if (!over) working(event.run_id);
    else if (state.run === event.run_id) working(null);
  },
  "chat.error": (event) => complain(problem(event.message, event.hint)),
  "tool.started": toolCard,
  "tool.output": outputOf,
  "tool.finished": (event) => {
    if (state.tools.has(event.tool_id)) finish(state.tools.get(event.tool_id), event);
  },
  "tool.approval_request": (event) => markById(event.tool_id, "AWAITING_APPROVAL"),
  "tool.approval_decided": (event) => event.tool_ids.forEach((id) => event.status === "approved" && markById(id, "EXECUTING")),
};

const KINDS = [...Object.keys(inConversation), "grant.changed"];

function heard(event) {
  if (event.kind === "grant.changed") return grantChanged(event.grant);
  if (event.kind === "tool.approval_request") ask(event, event.session_id !== state.session);
  if (event.kind === "tool.approval_decided") decidedElsewhere(event, settle(event.approval_id));
  if (event.session_id === state.session) inConversation[event.kind](event);
  else if (event.kind === "chat.message") listSessions().catch(() => {});
}

const DECIDED = { approved: "Allowed", rejected: "Denied", timeout: "Nobody answered in time", cancelled: "No longer asked" };

function decidedElsewhere(event, approval) {
  if (!approval) return;
  const by = letBy(event.decided_by, null, grantTexts());
  const what = `${visible(approval.tool_name)} ${callSummary(approval.tool_name, approval.tool_params)}`;
  remark(`${DECIDED[event.status] || event.status}${by ? ` ${by}` : ""}: ${what}`);
}

// Holds events back until what they belong to is known: the session of a message just sent, or the record of a reload.
async function holdingFeed(work) {
  feed.holding += 1;
  try {
    return await work();
  } finally {
    feed.holding -= 1;
    if (feed.holding === 0) feed.held.splice(0).forEach(heard);
  }
}

function link(text, look) {
  $("link").textContent = text;
  $("link").className = `link ${look}`;
}

function listen() {
  stopListening();
  const query = new URLSearchParams({ execute: "false" });
  if (feed.last) query.set("last_event_id", feed.last);
  const source = new EventSource(projectPath(`chat/stream?${query}`));
  feed.source = source;
  for (const kind of KINDS) {
    source.addEventListener(kind, (message) => {
      feed.last = message.lastEventId || feed.last;
      const event = JSON.parse(message.data);
      if (feed.holding) feed.held.push(event);
      else heard(event);
    });
  }
  return new Promise((resolve) => {
    source.onopen = () => {
      feed.tries = 0;
      link("connected", "up");
      resolve();
    };
    source.onerror = () => {
      link("connection lost, retrying…", "down");
      // A refusal ends an EventSource for good; a lost connection it mends itself.
      if (source.readyState === EventSource.CLOSED) listenLater();
      resolve();
    };
  });
}

function stopListening() {
  clearTimeout(feed.retry);
  if (feed.source) feed.source.close();
  feed.source = null;
}

function listenLater() {
  stopListening();
  feed.tries += 1;
  feed.retry = setTimeout(async () => {
    try {
      await api("/my/projects");
      await listen();
    } catch (error) {
      if (error.status === 401) signedOut();
      else listenLater();
    }
  }, Math.min(500 * 2 ** feed.tries, 15000));
}

function signedOut() {
  stopListening();
  settleAll();
  link("not signed in", "down");
  $("composer").hidden = $("signout").hidden = true;
  for (const label of document.querySelectorAll("header label")) label.hidden = true;
  const entry = element("div", "entry error");
  entry.append(prose("**You are not signed in.**\n\n`assent up` prints a link when it starts: open it in this browser. It works once and for ten minutes. For a new one stop `assent up` with Ctrl-C and start it again; nothing is lost."));
  $("conversation").replaceChildren(entry);
}

// Opening a project or a conversation

async function listSessions() {
  const { sessions } = await api(projectPath("chat/sessions"));
  const options = [option("", "new conversation")];
  for (const session of sessions) {
    const began = new Date(session.created_at).toLocaleString([], { dateStyle: "short", timeStyle: "short" });
    options.push(option(session.session_id, `${session.title.slice(0, 40)} · ${began}`));
  }
  $("session").replaceChildren(...options);
  $("session").value = state.session || "";
  return sessions;
}

async function listGrants() {
  setGrants((await api(`/my/grants?all=true&project_id=${encodeURIComponent(state.project)}`)).grants);
}

function option(value, text) {
  const made = element("option", "", text);
  made.value = value;
  return made;
}

async function openProject(project, wanted) {
  stopListening();
  Object.assign(feed, { last: null, tries: 0, held: [] });
  state.project = project;
  state.session = null;
  await holdingFeed(async () => {
    await listen();
    await listGrants();
    const sessions = await listSessions();
    const session = sessions.find((each) => each.session_id === wanted) || sessions[0];
    await openSession(session ? session.session_id : null);
  });
}

async function openSession(session) {
  await holdingFeed(async () => {
    remember(session);
    for (const known of [state.tools, state.texts, state.messages]) known.clear();
    settleAll();
    working(null);
    $("conversation").replaceChildren();
    if (session) await tellRecord(session);
    if (!$("conversation").hasChildNodes()) introduce();
    const { approvals } = await api(`/my/approvals?project_id=${encodeURIComponent(state.project)}`);
    approvals.forEach((approval) => ask(approval, approval.session_id !== state.session));
    toEnd();
  });
}

async function tellRecord(session) {
  const query = `session_id=${encodeURIComponent(session)}&limit=200`;
  const [{ messages }, { executions }] = await Promise.all([
    api(projectPath(`chat/messages?${query}`)),
    api(`/my/tools/history?project_id=${encodeURIComponent(state.project)}&${query}`),
  ]);
  const told = [
    ...messages.map((item) => ({ item, order: item.role === "user" ? 0 : 2, tell: () => sayMessage(item.role, item.content, item.message_id) })),
    ...executions.map((item) => ({ item, order: 1, tell: () => tellExecution(item) })),
  ];
  const earlier = (a, b) => (a.item.created_at < b.item.created_at ? -1 : a.item.created_at > b.item.created_at ? 1 : a.order - b.order);
  for (const { tell } of told.sort(earlier)) tell();
}

function tellExecution(execution) {
  const tool = toolCard(execution);
  if (execution.completed_at || execution.error) finish(tool, execution);
  else if (execution.run_id) working(execution.run_id);
  // A page of the history leaves long results out; what a command changed is to be seen all the same.
  const leftOut = execution.result && execution.result.shortened === true;
  if (leftOut && execution.tool_name === "execute_command") tellWhole(tool, execution.id).catch(() => {});
}

async function tellWhole(tool, id) {
  finish(tool, await api(`/my/tools/${encodeURIComponent(id)}`));
}

function remember(session) {
  state.session = session;
  $("session").value = session || "";
  history.replaceState(null, "", session ? `#${state.project}/${session}` : `#${state.project}`);
  drawGrants();
}

// What the person does

$("composer").addEventListener("submit", async (event) => {
  event.preventDefault();
  const content = $("message").value.trim();
  if (!content || $("send").disabled) return;
  const body = { content, mode: $("mode").value };
  if (state.session) body.session_id = state.session;
  $("send").disabled = true;
  $("message").value = ""; // at once: what is typed from now on is the next message
  try {
    await holdingFeed(async () => {
      const accepted = await api(projectPath("chat/messages"), body);
      working(accepted.run_id);
      if (state.session === accepted.session_id) return;
      remember(accepted.session_id);
      await listSessions();
    });
    toEnd();
  } catch (error) {
    $("send").disabled = state.run !== null;
    $("message").value = $("message").value || content;
    complain(error);
  }
});

$("message").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    $("composer").requestSubmit();
  }
});

$("stop").addEventListener("click", async () => {
  if (state.run) await api(projectPath(`chat/runs/${encodeURIComponent(state.run)}/cancel`), {}).catch(complain);
});

$("signout").addEventListener("click", async () => {
  await api("/signout", {}).catch(complain);
  location.reload();
});

$("mode").addEventListener("change", () => { $("warning").hidden = $("mode").value !== "full"; });
$("project").addEventListener("change", () => openProject($("project").value).catch(complain));
$("session").addEventListener("change", () => openSession($("session").value || null).catch(complain));

async function decide(id, body, byPointer) {
  try {
    const told = await api(`/my/approvals/${encodeURIComponent(id)}/confirm`, body);
    if (told.grant_id) await sayGranted(told, body.terms);
  } catch (error) {
    if (error.status !== 409) throw error;
    complain(problem(error.message.replace("person:", ""), error.hint));
  }
  settle(id);
  (byPointer ? $("message") : $("conversation")).focus();
}

async function sayGranted(told, terms) {
  if (!grantTexts()[told.grant_id]) await listGrants().catch(() => {}); // the answer was quicker than the feed
  const what = grantTexts()[told.grant_id] || "what you allowed.";
  const went = told.released.length;
  const others = went === 0 ? "" : went === 1 ? " 1 call that waited went with it." : ` ${went} calls that waited went with it.`;
  remark(`Allowed without asking for ${span(terms.expires_in_seconds)}: ${visible(what)}${others} Grants lists it and takes it back.`);
}

const clock = () => Date.now() + serverAhead;

async function start() {
  askIn($("waiting"), {
    decide,
    clock,
    preview: (rule) => api(projectPath("grants/preview"), { rule }),
    whole: (id) => api(`/my/approvals/${encodeURIComponent(id)}/whole`),
  });
  grantsIn({
    complain,
    clock,
    session: () => state.session,
    revoke: (id) => api(`/my/grants/${encodeURIComponent(id)}/revoke`, {}),
  });
  const { projects } = await api("/my/projects");
  if (projects.length === 0) projects.push(await api("/my/projects", { name: "default" }));
  $("project").replaceChildren(...projects.map((project) => option(project.project_id, project.name)));
  const [project, session] = location.hash.slice(1).split("/");
  const known = projects.find((each) => each.project_id === project) || projects[0];
  $("project").value = known.project_id;
  await openProject(known.project_id, session);
}

start().catch(complain);
