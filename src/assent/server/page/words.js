// How things read: calls, results and outcomes in plain words. Only makes nodes, and only ever by textContent.

export function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

export function pressable(className, text, press) {
  const button = element("button", className, text);
  button.type = "button";
  button.addEventListener("keydown", (event) => event.repeat && event.preventDefault());
  button.addEventListener("click", press);
  return button;
}

// What a screen obeys or nobody sees: controls, bidi marks, blanks without width, tags.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\u{e0000}-\u{e0fff}]/gu;
const LONGEST = 20000;

export function visible(text) {
  return String(text).replace(HIDDEN, (found) => `\\u{${found.codePointAt(0).toString(16)}}`);
}

function cut(text) {
  return text.length <= LONGEST ? text : `${text.slice(0, LONGEST)}\n… ${text.length - LONGEST} characters left out …`;
}

export function shownValue(value) {
  if (typeof value === "string") return visible(value);
  const line = JSON.stringify(value);
  return visible(line.length <= 80 ? line : JSON.stringify(value, null, 1));
}

const word = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : JSON.stringify(text));

export function callSummary(toolName, params) {
  if (toolName === "execute_command") {
    const args = Array.isArray(params.args) ? params.args : [];
    return visible([params.command, ...args].map((each) => word(String(each))).join(" "));
  }
  if (toolName === "search_files") return visible(`${word(String(params.pattern))} in ${params.path || "."}`);
  return visible(params.path ?? params.query ?? "");
}

export function resultText(toolName, result) {
  if (!result) return "";
  if (toolName === "read_file" && typeof result.content === "string") return cut(visible(result.content));
  if (toolName === "execute_command") {
    const output = `${result.stdout || ""}${result.stderr || ""}`;
    return cut(visible(`${output}${output && !output.endsWith("\n") ? "\n" : ""}exit code ${result.exit_code}`));
  }
  if (toolName === "list_directory" && Array.isArray(result.files)) {
    return cut(visible(result.files.map((file) => `${file.path}${file.type === "directory" ? "/" : ""}`).join("\n")));
  }
  if (toolName === "search_files" && Array.isArray(result.matches)) {
    return cut(visible(result.matches.map((hit) => `${hit.path}:${hit.line_number}: ${hit.line}`).join("\n")));
  }
  if (toolName === "write_file") return visible(`${result.path}: ${result.size} bytes now`);
  return cut(visible(JSON.stringify(result, null, 1)));
}

const STATUS = {
  PENDING: "starting…",
  AWAITING_APPROVAL: "waits for your decision",
  APPROVED: "allowed, waiting for your machine…",
  EXECUTING: "running…",
  COMPLETED: "done",
  REJECTED: "you said no",
  TIMEOUT: "nobody answered in time",
  FAILED: "failed",
};
const FAILURE = {
  invalid: "not a valid call",
  refused: "refused",
  no_client: "no machine was connected",
  drifted: "changed since it was approved",
  cancelled: "cancelled",
  interrupted: "interrupted",
  execution_timeout: "ran too long",
  tool_error: "failed",
};

export function outcome(status, errorType, milliseconds) {
  const said = (status === "FAILED" && FAILURE[errorType]) || STATUS[status] || status;
  return status === "COMPLETED" && typeof milliseconds === "number" ? `${said} in ${milliseconds} ms` : said;
}

// A span in the largest unit that says it well.
export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  for (const [unit, name] of [[3600, "hour"], [60, "minute"]]) {
    if (whole >= 2 * unit || whole === unit) {
      const count = Math.round(whole / unit);
      return `${count} ${name}${count === 1 ? "" : "s"}`;
    }
  }
  return `${whole} second${whole === 1 ? "" : "s"}`;
}

// Who or what let a call run, in plain words; nothing for what is LOW, which nobody is asked about.
export function letBy(actor, userId, grants) {
  const [kind, ...rest] = (actor || "").split(":");
  const name = visible(rest.join(":"));
  if (kind === "person") return name === userId ? "by your answer" : `by ${name}`;
  if (kind === "grant") return grants[name] ? `by your grant: ${visible(grants[name])}` : `by grant ${name}`;
  if (kind === "rule") return `by rule ${name}`;
  if (kind === "mode") return `by mode ${name}, unasked`;
  return "";
}

// The little Markdown agents use most: fenced code, `code` and **bold**. Everything else stays as it was written.
export function prose(text) {
  const whole = document.createDocumentFragment();
  text.split(/^```.*$/m).forEach((part, index) => {
    if (index % 2 === 1) whole.append(element("pre", "", part.replace(/^\n|\n$/g, "")));
    else for (const piece of part.replace(/^\n+|\n+$/g, "").split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/)) whole.append(inline(piece));
  });
  return whole;
}

function inline(piece) {
  if (piece.length > 2 && piece.startsWith("`") && piece.endsWith("`")) return element("code", "", piece.slice(1, -1));
  if (piece.length > 4 && piece.startsWith("**") && piece.endsWith("**")) return element("strong", "", piece.slice(2, -2));
  return document.createTextNode(piece);
}
