// Answers that reach further than one call. Nothing is chosen for the person, and what is saved is exactly the rule whose
// words the server gave: a rule that was changed must be read by the server before it can be allowed.

import { element, visible } from "/page/words.js";

const MINUTES = [[30, "30 minutes"], [60, "1 hour"], [120, "2 hours"], [480, "8 hours"], [1440, "24 hours"]];
const LOOK_AGAIN_MILLISECONDS = 300;
const MOST_USES = 10000;
const WARNING = "The agent will then write files and run programs on this machine without asking, also what is HIGH; only what "
  + "always asks (secrets, files that run later, the catastrophic, your own ask rules) still does. It ends with its time "
  + "or when you revoke it under Grants.";
let groups = 0;

export function similarPanel(approval, preview, changed) {
  const box = element("fieldset", "panel");
  box.append(element("legend", "", "In this conversation, without asking:"));
  const name = `similar-${groups += 1}`;
  const line = element("input", "rule");
  const told = element("div", "told");
  told.setAttribute("aria-live", "polite");
  const chosen = { suggestion: null, rule: null, turn: 0, timer: 0 };
  const details = element("div", "details");
  details.hidden = true;

  async function look() {
    const turn = chosen.turn += 1;
    chosen.rule = null;
    changed();
    try {
      const rule = readRule(line.value, chosen.suggestion.rule);
      const found = await preview(rule);
      if (turn !== chosen.turn) return;
      told.replaceChildren(...previewed(found, found.text !== chosen.suggestion.text));
      if (!found.problem) chosen.rule = rule;
    } catch (error) {
      if (turn === chosen.turn) told.replaceChildren(element("p", "note", error.message));
    }
    changed();
  }

  for (const suggestion of approval.suggestions) {
    const label = element("label", "choice");
    const radio = element("input");
    radio.type = "radio";
    radio.name = name;
    radio.addEventListener("change", () => {
      chosen.suggestion = suggestion;
      line.value = ruleLine(suggestion.rule) ?? "";
      editing.hidden = ruleLine(suggestion.rule) === null;
      details.hidden = false;
      look().then(() => box.scrollIntoView({ block: "end" }));
    });
    const words = element("span");
    words.append(element("strong", "", visible(suggestion.text)), element("span", "widest", `At most: ${visible(suggestion.widest)}`));
    label.append(radio, words);
    box.append(label);
  }
  line.type = "text";
  line.spellcheck = false;
  line.autocomplete = "off";
  line.addEventListener("input", () => {
    chosen.turn += 1;
    chosen.rule = null;
    changed();
    clearTimeout(chosen.timer);
    chosen.timer = setTimeout(look, LOOK_AGAIN_MILLISECONDS);
  });
  const isCommand = approval.tool_name === "execute_command";
  const editing = labelled("The rule; change it if you like", line);
  editing.append(element("span", "widest", isCommand ? "Words of the line; ... at the end lets anything follow." : "Patterns of paths, with blanks between them."));
  const limits = element("div", "limits");
  const span = spanSelect(480);
  const uses = element("input");
  uses.type = "number";
  uses.min = "1";
  uses.max = String(MOST_USES);
  uses.placeholder = "no limit";
  uses.addEventListener("input", changed);
  limits.append(labelled("For", span), labelled("At most so many times", uses));
  details.append(editing, told, limits);
  box.append(details);
  return {
    box,
    ready: () => chosen.rule !== null && uses.validity.valid,
    terms: () => ({
      scope: "class",
      terms: { rule: chosen.rule, expires_in_seconds: Number(span.value) * 60, max_uses: uses.value ? Number(uses.value) : null },
    }),
  };
}

export function everythingPanel(changed) {
  const box = element("fieldset", "panel grave");
  box.append(element("legend", "", "Everything in this conversation"), element("p", "alarm", WARNING));
  const sure = element("input");
  sure.type = "checkbox";
  sure.addEventListener("change", changed);
  const label = element("label", "choice sure");
  label.append(sure, element("span", "", "I have read this."));
  const span = spanSelect(60);
  box.append(label, labelled("For", span));
  return {
    box,
    ready: () => sure.checked,
    terms: () => ({ scope: "session", terms: { warned: true, expires_in_seconds: Number(span.value) * 60 } }),
  };
}

function previewed(found, edited) {
  const parts = [element("p", found.refused.length ? "alarm" : "", visible(found.sentence))];
  // A rule as it was offered has its words beside its radio button.
  if (edited) parts.unshift(element("p", "", `Changed: ${visible(found.text)}`), element("p", "widest", `At most: ${visible(found.widest)}`));
  if (found.refused.length) {
    const list = element("ul", "why");
    for (const call of found.refused) list.append(element("li", "", `You refused: ${visible(call.description)}`));
    parts.push(list);
  }
  if (found.problem) parts.push(element("p", "note", `This cannot be allowed: ${visible(found.problem)}`));
  return parts;
}

function labelled(text, control) {
  const label = element("label", "field");
  label.append(element("span", "label", text), control);
  return label;
}

function spanSelect(usual) {
  const select = element("select");
  select.autocomplete = "off";
  for (const [minutes, text] of MINUTES) {
    const option = element("option", "", text);
    option.value = String(minutes);
    option.selected = minutes === usual;
    select.append(option);
  }
  return select;
}

// A rule on one line, as one would type it

const plain = (word) => (/^[^\s'"\\]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

export function ruleLine(rule) {
  if (rule.tool === "execute_command") return [...rule.command.map(plain), ...(rule.exact ? [] : ["..."])].join(" ");
  return rule.paths?.length ? rule.paths.map(plain).join(" ") : null;
}

export function readRule(line, rule) {
  if (ruleLine(rule) === null) return rule;
  if (visible(line) !== line) throw new Error("The line holds characters that cannot be seen.");
  const words = split(line);
  if (words.length === 0) throw new Error("A rule needs at least one word.");
  if (rule.tool !== "execute_command") return { ...rule, paths: words };
  const open = ["...", "…"].includes(words.at(-1));
  return { ...rule, command: open ? words.slice(0, -1) : words, exact: !open };
}

function split(line) {
  const words = [];
  let word = null;
  for (const [piece] of line.matchAll(/'[^']*'|"[^"]*"|[^\s'"]+|\s+|['"]/g)) {
    if (/^\s/.test(piece)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (piece === "'" || piece === '"') {
      throw new Error("A quotation mark is not closed.");
    } else {
      word = (word ?? "") + (/^['"]/.test(piece) ? piece.slice(1, -1) : piece);
    }
  }
  if (word !== null) words.push(word);
  return words;
}
