// The frame of the console: sign-in, navigation, and the view that the address names.

import { attempt, live, may, offers, resume, session, setLive, signIn, signOut, whenSignedOut } from "./api.js";
import { field, h, notify, replace } from "./dom.js";
import { jobView } from "./job.js";
import { jobsView } from "./jobs.js";
import { recipeView, recipesView } from "./recipes.js";
import { auditView, nodesView } from "./system.js";

const header = document.getElementById("header");
const main = document.getElementById("main");
let leave = () => {};
let current = "";

// Part of an address that a person may have typed.
function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

const ROUTES = [
  [/^\/jobs$/, () => jobsView(main)],
  [/^\/jobs\/([^/]+)(?:\/([a-z]+))?$/, (job, part) => jobView(main, decoded(job), part ?? "overview")],
  [/^\/recipes$/, () => recipesView(main)],
  [/^\/recipes\/([^/]+)$/, (name) => recipeView(main, decoded(name))],
  [/^\/nodes$/, () => nodesView(main)],
  [/^\/audit$/, () => auditView(main)],
];

function links() {
  const found = [["#/jobs", "Jobs"]];
  if (offers("recipes")) found.push(["#/recipes", "Recipes"]);
  if (offers("nodes")) found.push(["#/nodes", "Nodes"]);
  if (offers("audit") && may("admin") && session.jobs.length === 0) found.push(["#/audit", "Audit log"]);
  return found;
}

function drawHeader() {
  const here = `#${location.hash.slice(1).split("/").slice(0, 2).join("/")}`;
  replace(header,
    h("a", { class: "brand", href: "#/jobs" }, "skitter"),
    session ? h("nav", { "aria-label": "Main" }, links().map(([href, title]) =>
      h("a", { href, "aria-current": here === href ? "page" : null }, title))) : null,
    session ? h("div", { class: "who" },
      h("button", { type: "button", class: "quiet live", "aria-pressed": String(live), onclick: () => { setLive(!live); drawHeader(); } }, "Live updates"),
      h("span", null, h("bdi", null, session.name), h("span", { class: "badge plain" }, session.scope)),
      h("button", { type: "button", class: "quiet", onclick: end }, "Sign out")) : null);
}

async function end() {
  leave(); // its view asks for nothing without a session
  leave = () => {};
  await signOut();
  start();
}

function signInView() {
  leave();
  leave = () => {};
  const token = h("input", { type: "password", autocomplete: "current-password", required: true, id: "token" });
  const submit = async (event) => {
    event.preventDefault();
    if (await attempt(() => signIn(token.value.trim()).then(() => true))) start();
  };
  drawHeader();
  replace(main, h("form", { class: "card sign-in", onsubmit: submit },
    h("h1", null, "Sign in"),
    field("Token", token, "A token of the API, from the operator of this service."),
    h("button", { type: "submit", class: "primary" }, "Sign in")));
  token.focus();
}

function show() {
  if (!session) return;
  const path = location.hash.slice(1) || "/jobs";
  leave();
  leave = () => {};
  drawHeader();
  for (const [pattern, view] of ROUTES) {
    const found = pattern.exec(path);
    if (found) {
      leave = view(...found.slice(1)) ?? (() => {});
      const titles = [main.querySelector(".tabs [aria-current]"), main.querySelector("h1")].filter(Boolean).map((one) => one.textContent);
      document.title = [...titles, "skitter"].join(" · ");
      main.setAttribute("aria-label", titles.join(", "));
      if (current && current !== path) main.focus({ preventScroll: true });
      current = path;
      return;
    }
  }
  location.hash = "#/jobs";
}

async function start() {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (given) {
    history.replaceState(null, "", location.pathname);
    await attempt(() => signIn(decoded(given[1])));
  }
  if (!session) await resume().catch(() => null);
  if (session) show();
  else signInView();
}

whenSignedOut(() => {
  notify("The session has ended.", "error");
  resume().catch(() => null).then(() => (session ? null : signInView()));
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names a view, not an element
  main.focus();
});
window.addEventListener("hashchange", () => (location.hash.startsWith("#token=") ? start() : show()));
start();
