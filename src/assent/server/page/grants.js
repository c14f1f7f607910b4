// What was allowed beyond one call: always in sight by its count, listed with what is left of it, taken back by a click.

import { element, pressable, span, visible } from "/page/words.js";

const known = new Map();
const $ = (id) => document.getElementById(id);
let server, texts = {};

// `talk` has revoke(id), complain(error), clock() and session().
export function grantsIn(talk) {
  server = talk;
  $("show-grants").addEventListener("click", () => {
    $("grants").hidden = !$("grants").hidden;
    $("show-grants").setAttribute("aria-expanded", String(!$("grants").hidden));
    draw();
  });
  setInterval(draw, 15000);
}

export function setGrants(grants) {
  known.clear();
  grants.forEach((grant) => known.set(grant.id, grant));
  texts = Object.fromEntries(grants.map((grant) => [grant.id, grant.text]));
  draw();
}

export function grantChanged(grant) {
  // Newest first, as the server lists them.
  const others = [...known.values()].filter((each) => each.id !== grant.id);
  const at = known.has(grant.id) ? [...known.keys()].indexOf(grant.id) : 0;
  others.splice(at, 0, grant);
  setGrants(others);
}

export const grantTexts = () => texts;

const isActive = (grant) => grant.status === "active" && Date.parse(grant.expires_at) > server.clock();

export function draw() {
  const active = [...known.values()].filter(isActive);
  const button = $("show-grants");
  button.textContent = `Grants (${active.length})`;
  const everything = active.some((grant) => grant.scope === "session" && grant.session_id === server.session());
  button.classList.toggle("alarm", everything);
  button.title = everything ? "Everything in this conversation is allowed." : "What you allowed beyond one call";
  const list = $("grant-list");
  // A person about to press Revoke must not lose the button under the pointer.
  const shown = JSON.stringify([active.map((grant) => [grant.id, facts(grant)]), server.session()]);
  if (list.dataset.shown === shown) return;
  list.dataset.shown = shown;
  list.replaceChildren(...active.map(line));
  $("no-grants").hidden = active.length > 0;
}

function facts(grant) {
  const used = grant.uses === 0 ? "never used" : grant.uses === 1 ? "used once" : `used ${grant.uses} times`;
  const left = grant.max_uses === null ? "" : `, ${Math.max(0, grant.max_uses - grant.uses)} left`;
  const end = span((Date.parse(grant.expires_at) - server.clock()) / 1000);
  const where = grant.session_id === server.session() ? "this conversation" : "another conversation";
  return `${used}${left} · ends in ${end} · ${where}`;
}

function line(grant) {
  const item = element("li", grant.scope === "session" ? "grant alarm" : "grant");
  const words = element("div");
  words.append(element("strong", "", visible(grant.text)), element("div", "widest", facts(grant)));
  const revoke = pressable("revoke", "Revoke", async () => {
    revoke.disabled = true;
    try {
      grantChanged(await server.revoke(grant.id));
    } catch (error) {
      revoke.disabled = false;
      server.complain(error);
    }
  });
  revoke.setAttribute("aria-label", `Revoke: ${visible(grant.text)}`);
  item.append(words, revoke);
  return item;
}
