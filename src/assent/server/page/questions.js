// What waits for a decision. A question never takes the focus and no key of its own answers it. Allow is locked for a
// moment whenever questions move, so that a click meant for one never hits another, and HIGH takes a second step.

import { element, shownValue, visible } from "/page/words.js";

const SETTLE_MILLISECONDS = 700;
const questions = new Map();
let lockedUntil = 0;
let place, decide, clock;

export function askIn(section, decideOne, serverTime) {
  place = section;
  decide = decideOne;
  clock = serverTime;
  setInterval(tick, 1000);
}

export function ask(approval, elsewhere) {
  const id = approval.approval_id || approval.id;
  if (questions.has(id)) return;
  const risk = approval.risk_level;
  const box = element("article", `question ${risk}`);
  const left = element("span", "left");
  const head = element("div", "head");
  head.append(element("span", `risk ${risk}`, risk), element("strong", "", `Allow ${approval.tool_name}?`), left);
  box.append(head, ...what(approval), ...why(approval));
  if (elsewhere) box.append(element("p", "aside", "Asked in another conversation of this project."));
  const question = { id, box, left, deadline: Date.parse(approval.deadline), approval, busy: false };
  box.append(...controls(question));
  questions.set(id, question);
  // Those of the conversation on the screen come first.
  box.classList.toggle("elsewhere", elsewhere);
  place.insertBefore(box, elsewhere ? null : place.querySelector(".elsewhere"));
  moved();
}

export function settle(id) {
  const question = questions.get(id);
  if (!question) return;
  question.box.remove();
  questions.delete(id);
  moved();
}

export function settleAll() {
  for (const id of [...questions.keys()]) settle(id);
}

function what(approval) {
  // The reasons have a list of their own; what is left of the description says what would happen.
  const reasons = new Set(approval.findings.map((finding) => finding.reason));
  const lines = approval.description.split("\n").filter((line, index) => index === 0 || !reasons.has(line));
  const params = element("dl", "params");
  for (const [name, value] of Object.entries(approval.tool_params)) {
    const text = shownValue(value);
    const count = text.split("\n").length;
    params.append(element("dt", "", count > 12 ? `${name} (${count} lines, scroll to see all)` : name));
    const holder = element("dd");
    const shown = element("pre", "", text);
    if (count > 12) shown.tabIndex = 0;
    holder.append(shown);
    params.append(holder);
  }
  return [element("p", "what", visible(lines.join("\n"))), params];
}

function why(approval) {
  const list = element("ul", "why");
  for (const finding of approval.findings) list.append(element("li", "", visible(finding.reason)));
  list.append(element("li", "", approval.network ? "It may use the network." : "It gets no network."));
  return [list];
}

function controls(question) {
  const row = element("div", "row");
  question.allow = element("button", "allow", "Allow once");
  question.deny = element("button", "deny", "Deny");
  question.reason = element("input");
  question.reason.placeholder = "Reason to deny, told to the agent";
  question.reason.maxLength = 1000;
  question.reason.setAttribute("aria-label", "Reason to deny");
  question.note = element("p", "note");
  question.note.setAttribute("role", "alert");
  for (const button of [question.allow, question.deny]) {
    button.type = "button";
    button.addEventListener("keydown", (event) => event.repeat && event.preventDefault());
  }
  question.allow.addEventListener("click", (event) => answer(question, "approved", event));
  question.deny.addEventListener("click", (event) => answer(question, "rejected", event));
  row.append(question.allow, question.deny, question.reason);
  const rows = [row, question.note];
  if (question.approval.risk_level === "HIGH") {
    const label = element("label", "sure");
    question.sure = element("input");
    question.sure.type = "checkbox";
    question.sure.addEventListener("change", tick);
    label.append(question.sure, " I have read what would run");
    rows.unshift(label);
  }
  return rows;
}

async function answer(question, decision, event) {
  if (question.busy || (decision === "approved" && !mayAllow(question))) return;
  question.busy = true;
  question.note.textContent = "";
  tick();
  const body = { decision };
  const reason = question.reason.value.trim();
  if (decision === "rejected" && reason) body.reason = reason;
  if (decision === "approved") body.digest = question.approval.digest;
  try {
    await decide(question.id, body, event.detail > 0);
  } catch (error) {
    question.busy = false;
    question.note.textContent = error.hint ? `${error.message}\nhint: ${error.hint}` : error.message;
    tick();
  }
}

function mayAllow(question) {
  const inTime = question.deadline > clock() && Date.now() >= lockedUntil;
  return inTime && !question.busy && (!question.sure || question.sure.checked);
}

function moved() {
  lockedUntil = Date.now() + SETTLE_MILLISECONDS;
  setTimeout(tick, SETTLE_MILLISECONDS + 10);
  document.title = questions.size ? `(${questions.size}) Assent: your decision` : "Assent";
  tick();
}

function tick() {
  for (const question of questions.values()) {
    const seconds = Math.max(0, Math.round((question.deadline - clock()) / 1000));
    const time = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")} left`;
    question.left.textContent = seconds > 0 ? time : "time is up, nothing runs";
    question.left.classList.toggle("soon", seconds <= 30);
    question.allow.disabled = !mayAllow(question);
    question.deny.disabled = question.busy || seconds === 0;
  }
}
