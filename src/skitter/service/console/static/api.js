// Calls of the HTTP API. The session is a cookie that scripts cannot read; calls that change something repeat its CSRF value.

import { notify, replace } from "./dom.js";

export let session = null;

export class Problem extends Error {
  constructor(status, document) {
    const first = document.detail ?? document.title ?? `status ${status}`;
    super(document.remedy ? `${first}: ${document.remedy}` : first);
    this.status = status;
    this.errors = document.errors ?? [];
    this.detail = first;
  }
}

const connection = document.getElementById("connection");
let onSignedOut = () => {};
export const whenSignedOut = (act) => { onSignedOut = act; };

export async function call(method, path, body, kind = "application/json") {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = kind;
  if (method !== "GET" && session) headers[session.csrf_header] = session.csrf;
  const content = body === undefined || kind !== "application/json" ? body : JSON.stringify(body);
  let response;
  try {
    response = await fetch(path, { method, headers, body: content, credentials: "same-origin" });
  } catch {
    throw new Problem(0, { detail: "the server does not respond" });
  }
  const text = await response.text();
  let found = null;
  try { found = text ? JSON.parse(text) : null; } catch { found = null; }
  if (response.status === 401 && session) onSignedOut();
  if (!response.ok) throw new Problem(response.status, found ?? {});
  return found;
}

export const get = (path) => call("GET", path);

// Calls, and shows an error as a notice. Returns undefined then.
export async function attempt(work, success) {
  try {
    const result = await work();
    if (success) notify(typeof success === "function" ? success(result) : success);
    return result;
  } catch (error) {
    notify(error.message, "error");
    return undefined;
  }
}

// Only tells whether asking for the session is worth it: scripts cannot see the cookie.
const HINT = "skitter-signed-in";

export async function resume() {
  if (!localStorage.getItem(HINT)) return null;
  const response = await fetch("/session", { credentials: "same-origin" });
  if (!response.ok && response.status !== 401) throw new Problem(response.status, {}); // of a proxy; the session may be good
  session = response.ok ? await response.json() : null;
  if (!session) localStorage.removeItem(HINT);
  return session;
}

export async function signIn(token) {
  const response = await fetch("/session", { method: "POST", headers: { Authorization: `Bearer ${token}` }, credentials: "same-origin" });
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem(response.status, found);
  session = found;
  localStorage.setItem(HINT, "yes");
}

export async function signOut() {
  await call("DELETE", "/session").catch(() => {});
  session = null;
  localStorage.removeItem(HINT);
}

const SCOPES = ["read", "operate", "admin"];
export const may = (scope) => session !== null && SCOPES.indexOf(session.scope) >= SCOPES.indexOf(scope);
export const offers = (feature) => session !== null && session.features.includes(feature);

// Whether what is shown changes by itself. A person who reads it with a screen reader or a lens can stop that (WCAG 2.2, 2.2.2).
export let live = true;

export function setLive(value) {
  live = value;
  document.dispatchEvent(new Event("livechange"));
}

const mayChange = () => live && !document.hidden;

// Calls a function after a pause, as soon as what is shown may change then. Returns what cancels the call.
export function later(work, pause) {
  let timer = 0;
  const wait = () => { timer = setTimeout(() => (mayChange() ? work() : wait()), pause); };
  wait();
  return () => clearTimeout(timer);
}

const LOST_AFTER = 4000;
const FIRST_RETRY = 1000;
const LONGEST_RETRY = 30000;

// Listens to server-sent events until the returned function is called. After a broken connection, the browser connects again by
// itself; after a refusal, such as that of a proxy whose server restarts, it does not, so we do.
// A hidden page listens to nothing: browsers allow six connections to a server over HTTP/1.1. One that must not change by itself
// takes the first update.
export function listen(path, handlers) {
  let source = null;
  let ended = false;
  let pause = FIRST_RETRY;
  let retry = 0;
  let warning = 0;

  const connected = () => {
    clearTimeout(warning);
    warning = 0;
    pause = FIRST_RETRY;
    replace(connection);
  };
  const lost = async () => {
    handlers.lost?.();
    warning ||= setTimeout(() => replace(connection, "No connection to the server. Trying again …"), LOST_AFTER);
    if (source.readyState !== EventSource.CLOSED) return;
    const known = await resume().catch(() => session);
    if (ended) return;
    if (!known) onSignedOut();
    else {
      clearTimeout(retry);
      retry = setTimeout(open, pause);
      pause = Math.min(2 * pause, LONGEST_RETRY);
    }
  };
  function open() {
    source?.close();
    source = new EventSource(path);
    for (const [name, act] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => {
        act(event.data === undefined ? null : JSON.parse(event.data));
        if (name === "update" && !live) source.close();
      });
    }
    source.addEventListener("open", connected);
    source.addEventListener("error", lost);
  }
  const show = () => {
    if (!mayChange()) source.close();
    else if (source.readyState === EventSource.CLOSED) open();
  };
  open();
  document.addEventListener("visibilitychange", show);
  document.addEventListener("livechange", show);
  return () => {
    ended = true;
    clearTimeout(retry);
    connected();
    document.removeEventListener("visibilitychange", show);
    document.removeEventListener("livechange", show);
    source.close();
  };
}

export const query = (values) => {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== "" && value !== null && value !== undefined && value !== false) found.set(name, value);
  }
  return found.toString();
};
