// The chat page: one feed, one conversation, what waits for a decision. Text only ever goes in by textContent.

const $ = (id) => document.getElementById(id);
const state = { project: null, session: null, run: null, source: null, tools: new Map(), texts: new Map(), questions: new Map() };

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

async function api(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  };
  const answer = await fetch(path, { credentials: "same-origin", ...options });
  if (answer.status === 204) return null;
  const told = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(told.detail), { problem: told });
  return told;
}

function say(className, text) {
  const conversation = $("conversation");
  const nearEnd = conversation.scrollHeight - conversation.scrollTop - conversation.clientHeight < 80;
  const entry = typeof text === "string" ? element("div", `entry ${className}`, text) : text;
  conversation.append(entry);
  if (nearEnd) entry.scrollIntoView({ block: "end" });
  return entry;
}

function complain(error) {
  const hint = error.problem && error.problem.hint ? `\n${error.problem.hint}` : "";
  say("error", `${error.message}${hint}`);
}

// Tool calls

function toolCard(event) {
  const card = element("details", "entry tool");
  const title = element("summary", "", `${event.tool_name} · ${event.risk_level} · …`);
  const params = element("pre", "", JSON.stringify(event.tool_params, null, 2));
  const output = element("pre");
  card.append(title, params, output);
  state.tools.set(event.tool_id, { card, title, output, event });
  say("", card);
}

function toolOutput(event) {
  const tool = state.tools.get(event.tool_id);
  if (tool) tool.output.append(event.text);
}

function toolFinished(event) {
  const tool = state.tools.get(event.tool_id);
  if (!tool) return;
  const took = event.execution_time_ms === null ? "" : ` · ${event.execution_time_ms} ms`;
  tool.title.textContent = `${event.tool_name} · ${tool.event.risk_level} · ${event.status}${took}`;
  const shown = event.error !== null ? event.error : JSON.stringify(event.result, null, 2);
  tool.output.textContent = event.result_shortened ? `${shown}\n(shortened)` : shown;
}

// Decisions

function ask(approval) {
  const id = approval.approval_id || approval.id;
  if (state.questions.has(id)) return;
  const box = element("div", `question ${approval.risk_level}`);
  box.append(element("strong", "", `${approval.tool_name} · ${approval.risk_level}`));
  box.append(element("pre", "", approval.description));
  for (const finding of approval.findings) box.append(element("div", "", `• ${finding.reason}`));
  if (approval.network) box.append(element("div", "", "• It would use the network."));
  const row = element("div", "row");
  const left = element("span", "left");
  const reason = element("input");
  reason.placeholder = "reason, told to the agent (optional)";
  reason.maxLength = 1000;
  reason.setAttribute("aria-label", "Reason");
  const allow = element("button", "allow", "Allow");
  const deny = element("button", "deny", "Deny");
  row.append(allow, deny, reason, left);
  box.append(row);
  const decide = async (decision) => {
    allow.disabled = deny.disabled = true;
    const body = { decision };
    if (decision === "rejected" && reason.value) body.reason = reason.value;
    if (decision === "approved") body.digest = approval.digest;
    try {
      await api(`/my/approvals/${encodeURIComponent(id)}/confirm`, body);
      settle(id);
    } catch (error) {
      complain(error);
      if (error.problem && error.problem.status === 409) settle(id);
      else allow.disabled = deny.disabled = false;
    }
  };
  allow.addEventListener("click", () => decide("approved"));
  deny.addEventListener("click", () => decide("rejected"));
  state.questions.set(id, { box, left, deadline: Date.parse(approval.deadline) });
  $("waiting").append(box);
  tick();
}

function settle(id) {
  const question = state.questions.get(id);
  if (!question) return;
  question.box.remove();
  state.questions.delete(id);
}

function tick() {
  for (const question of state.questions.values()) {
    const seconds = Math.max(0, Math.round((question.deadline - Date.now()) / 1000));
    question.left.textContent = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} left`;
  }
}
setInterval(tick, 1000);

// The feed

const handlers = {
  "chat.message": (event) => {
    const streamed = state.texts.get(event.run_id);
    if (event.role === "agent" && streamed) {
      streamed.textContent = event.content;
      state.texts.delete(event.run_id);
    } else {
      say(event.role, event.content);
    }
  },
  "chat.text": (event) => {
    if (!state.texts.has(event.run_id)) state.texts.set(event.run_id, say("agent", ""));
    state.texts.get(event.run_id).append(event.text);
  },
  "chat.run": (event) => {
    const over = event.state === "DONE" || event.state === "FAILED";
    if (!over) state.run = event.run_id;
    else if (state.run === event.run_id) state.run = null;
    $("stop").hidden = state.run === null;
  },
  "chat.error": (event) => say("error", event.hint ? `${event.message}\n${event.hint}` : event.message),
  "tool.started": toolCard,
  "tool.output": toolOutput,
  "tool.finished": toolFinished,
  "tool.approval_request": ask,
  "tool.approval_decided": (event) => settle(event.approval_id),
};

function listen() {
  if (state.source) state.source.close();
  const source = new EventSource(`/my/projects/${encodeURIComponent(state.project)}/chat/stream?execute=false`);
  state.source = source;
  source.onopen = () => { $("link").textContent = "connected"; };
  source.onerror = () => { $("link").textContent = "connection lost, trying again…"; };
  for (const [kind, handler] of Object.entries(handlers)) {
    source.addEventListener(kind, (message) => handler(JSON.parse(message.data)));
  }
}

async function open(project) {
  Object.assign(state, { project, session: null, run: null });
  for (const known of [state.tools, state.texts]) known.clear();
  for (const id of [...state.questions.keys()]) settle(id);
  $("conversation").replaceChildren();
  listen();
  const path = `/my/projects/${encodeURIComponent(project)}/chat`;
  const { sessions } = await api(`${path}/sessions`);
  if (sessions.length > 0) {
    state.session = sessions[0].session_id;
    const { messages } = await api(`${path}/messages?session_id=${encodeURIComponent(state.session)}&limit=200`);
    for (const message of messages) say(message.role, message.content);
  }
  const { approvals } = await api(`/my/approvals?project_id=${encodeURIComponent(project)}`);
  approvals.forEach(ask);
}

$("composer").addEventListener("submit", async (event) => {
  event.preventDefault();
  const content = $("message").value.trim();
  if (!content) return;
  const body = { content, mode: $("mode").value };
  if (state.session) body.session_id = state.session;
  try {
    const accepted = await api(`/my/projects/${encodeURIComponent(state.project)}/chat/messages`, body);
    state.session = accepted.session_id;
    $("message").value = "";
  } catch (error) {
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
  const path = `/my/projects/${encodeURIComponent(state.project)}/chat/runs/${encodeURIComponent(state.run)}/cancel`;
  await api(path, {}).catch(complain);
});

$("signout").addEventListener("click", async () => {
  await api("/signout", {}).catch(complain);
  location.reload();
});

$("project").addEventListener("change", () => open($("project").value).catch(complain));

async function start() {
  const { projects } = await api("/my/projects");
  if (projects.length === 0) projects.push(await api("/my/projects", { name: "default" }));
  for (const project of projects) {
    const option = element("option", "", project.name);
    option.value = project.project_id;
    $("project").append(option);
  }
  await open(projects[0].project_id);
}

start().catch((error) => {
  $("link").textContent = "not signed in";
  complain(error);
});
