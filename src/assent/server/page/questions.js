// What waits for a decision. A question never takes the focus and no key of its own answers it. What allows is locked
// for a moment whenever something moves, so that a click meant for one never hits another; HIGH takes a second click.

import { everythingPanel, similarPanel } from "/page/similar.js";
import { element, pressable, shownValue, visible } from "/page/words.js";

const SETTLE_MILLISECONDS = 700;
const ARMED_MILLISECONDS = 10000;
const LONG_LINES = 12;
const questions = new Map();
let lockedUntil = 0;
let place, server;

// `talk` has decide(id, body, byPointer), preview(rule), whole(id) and clock().
export function askIn(section, talk) {
  place = section;
  server = talk;
  setInterval(tick, 1000);
}

export function ask(approval, elsewhere) {
  const id = approval.approval_id || approval.id;
  if (questions.has(id)) return;
  const risk = approval.risk_level;
  const box = element("article", `question ${risk}`);
  const left = element("span", "left");
  const head = element("div", "head");
  head.append(element("span", `risk ${risk}`, risk), element("strong", "", `Allow ${visible(approval.tool_name)}?`), left);
  box.append(head, what(approval), parameters(approval), ...inspected(approval.inspection), why(approval));
  if (elsewhere) box.append(element("p", "aside", "Asked in another conversation of this project."));
  const question = { id, box, left, deadline: Date.parse(approval.deadline), approval, busy: false, allows: [] };
  box.append(...controls(question));
  questions.set(id, question);
  // Those of the conversation on the screen come first.
  box.classList.toggle("elsewhere", elsewhere);
  place.insertBefore(box, elsewhere ? null : place.querySelector(".elsewhere"));
  if (questions.size === 1) place.scrollTop = 0; // a browser remembers where the last one was scrolled to
  moved();
}

// Takes a question away; gives its approval when it was on the screen and was not answered here.
export function settle(id) {
  const question = questions.get(id);
  if (!question) return null;
  question.box.remove();
  questions.delete(id);
  moved();
  return question.busy ? null : question.approval;
}

export function settleAll() {
  for (const id of [...questions.keys()]) settle(id);
}

// What is shown

function what(approval) {
  // Reasons and content have places of their own; what is left of the description says what would happen.
  const reasons = new Set(approval.findings.map((finding) => finding.reason));
  const below = (line) => reasons.has(line) || (approval.tool_params.content && line.startsWith("Content: "));
  const lines = approval.description.split("\n").filter((line, index) => index === 0 || !below(line));
  const told = element("div", "what");
  lines.forEach((line, index) => told.append(element(index === 0 ? "strong" : "div", "", visible(line))));
  return told;
}

function parameters(approval) {
  const params = element("dl", "params");
  const { command, args, ...others } = approval.tool_params;
  if (approval.tool_name === "execute_command") {
    const argv = element("dd", "argv");
    for (const word of [command, ...(Array.isArray(args) ? args : [])]) argv.append(element("code", "", visible(word)), " ");
    params.append(element("dt", "", "arguments"), argv);
  }
  const shown = approval.tool_name === "execute_command" ? others : approval.tool_params;
  for (const [name, value] of Object.entries(shown)) {
    const holder = element("dd");
    holder.append(longText(shownValue(value)));
    params.append(element("dt", "", visible(name)), holder);
  }
  return params;
}

// Long text scrolls in its box, says how long it is, and can be reached with the keyboard.
function longText(text) {
  const holder = document.createDocumentFragment();
  const shown = element("pre", "", text);
  const count = text.split("\n").length;
  if (count > LONG_LINES) {
    shown.tabIndex = 0;
    holder.append(element("div", "label", `${count} lines, scroll to see all`));
  }
  holder.append(shown);
  return holder;
}

function inspected(inspection) {
  if (!inspection) return [];
  const boxes = inspection.files.map((file) => {
    const box = element("div", "seen");
    const size = typeof file.size === "number" ? `${file.size} bytes, ` : "";
    const there = file.sha256 === "missing" ? "is not there" : `${size}sha256 ${visible(file.sha256.slice(0, 12))}…`;
    const head = element("div", "label", "This will run: ");
    head.append(element("code", "", visible(file.path)), ` (${there})`);
    box.append(head);
    if (file.text) box.append(longText(visible(file.text)));
    else if (file.sha256 !== "missing") box.append(element("p", "aside", file.size === 0 ? "It is empty." : "Its content is not text."));
    if (file.shortened) box.append(element("p", "aside", "Only its beginning is here; the whole file is on the machine."));
    return box;
  });
  if (inspection.problem) boxes.push(element("p", "note", `What would run could not be looked at: ${visible(inspection.problem)}`));
  return boxes;
}

function why(approval) {
  const list = element("ul", "why");
  for (const finding of approval.findings) list.append(element("li", "", visible(finding.reason)));
  list.append(element("li", "", approval.network ? "It may use the network." : "It gets no network."));
  return list;
}

// What can be answered

function controls(question) {
  const { approval } = question;
  const once = allowing(question, "allow", "Allow once", () => true, (event) => allowOnce(question, once, event));
  const row = element("div", "row");
  row.append(once);
  const panels = [];
  const always = approval.risk_level === "HIGH" || approval.findings.some((finding) => finding.always_asks);
  if (!always && approval.session_id && approval.suggestions?.length) {
    panels.push(opening(question, row, "similar", "Allow similar…", "Allow this", similarPanel(approval, server.preview, tick)));
  }
  if (approval.session_id) {
    panels.push(opening(question, row, "everything", "Allow all in this session…", "Allow everything", everythingPanel(tick)));
  }
  question.deny = pressable("deny", "Deny", (event) => answer(question, denial(question), event));
  question.reason = element("input");
  question.reason.placeholder = "Reason to deny, told to the agent";
  question.reason.maxLength = 1000;
  question.reason.setAttribute("aria-label", "Reason to deny");
  row.append(question.deny, question.reason);
  question.note = element("p", "note");
  question.note.setAttribute("role", "alert");
  return [...wholeCall(question), row, ...panels, question.note];
}

function allowing(question, look, text, ready, press) {
  const button = pressable(look, text, press);
  question.allows.push({ button, ready });
  return button;
}

function opening(question, row, name, text, act, panel) {
  const open = pressable(`open ${name}`, text, () => {
    const shown = panel.box.hidden;
    for (const other of question.box.querySelectorAll(".panel")) other.hidden = true;
    for (const other of question.box.querySelectorAll(".open")) other.setAttribute("aria-expanded", "false");
    panel.box.hidden = !shown;
    open.setAttribute("aria-expanded", String(shown));
    if (shown) open.scrollIntoView({ block: "start" });
    moved();
  });
  open.setAttribute("aria-expanded", "false");
  const allow = allowing(question, "allow", act, panel.ready, (event) => answer(question, approvalOf(question, panel.terms()), event));
  panel.box.hidden = true;
  panel.box.append(allow);
  row.append(open);
  return panel.box;
}

// Where content was too long to be sent along, all of it is fetched when asked for.
function wholeCall(question) {
  if (question.approval.tool_params.content_size === undefined) return [];
  const shown = element("pre", "whole");
  shown.tabIndex = 0;
  shown.hidden = true;
  const button = pressable("show-all", "Show all of it", async () => {
    button.disabled = true;
    try {
      shown.textContent = visible((await server.whole(question.id)).text);
      shown.hidden = false;
      button.remove();
      moved();
    } catch (error) {
      button.disabled = false;
      complain(question, error);
    }
  });
  return [button, shown];
}

function approvalOf(question, terms) {
  return { decision: "approved", digest: question.approval.digest, ...terms };
}

function denial(question) {
  const reason = question.reason.value.trim();
  return reason ? { decision: "rejected", reason } : { decision: "rejected" };
}

function allowOnce(question, button, event) {
  if (question.approval.risk_level === "HIGH" && !button.classList.contains("really")) {
    button.classList.add("really");
    button.textContent = "Really run it";
    setTimeout(() => {
      button.classList.remove("really");
      button.textContent = "Allow once";
      tick();
    }, ARMED_MILLISECONDS);
    moved(); // a double click is one step
    return;
  }
  answer(question, approvalOf(question, {}), event);
}

async function answer(question, body, event) {
  if (question.busy || (body.decision === "approved" && !mayAllow(question))) return;
  question.busy = true;
  question.note.textContent = "";
  tick();
  try {
    await server.decide(question.id, body, event.detail > 0);
  } catch (error) {
    question.busy = false;
    complain(question, error);
    tick();
  }
}

function complain(question, error) {
  question.note.textContent = error.hint ? `${error.message}\nhint: ${error.hint}` : error.message;
}

function mayAllow(question) {
  return question.deadline > server.clock() && Date.now() >= lockedUntil && !question.busy;
}

function moved() {
  lockedUntil = Date.now() + SETTLE_MILLISECONDS;
  setTimeout(tick, SETTLE_MILLISECONDS + 10);
  document.title = questions.size ? `(${questions.size}) Assent: your decision` : "Assent";
  tick();
}

function tick() {
  for (const question of questions.values()) {
    const seconds = Math.max(0, Math.round((question.deadline - server.clock()) / 1000));
    const time = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} left`;
    question.left.textContent = seconds > 0 ? time : "time is up, nothing runs";
    question.left.classList.toggle("soon", seconds <= 30);
    for (const { button, ready } of question.allows) button.disabled = !mayAllow(question) || !ready();
    question.deny.disabled = question.busy || seconds === 0;
  }
}
