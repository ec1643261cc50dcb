// Calls of the HTTP API. The session is a cookie that scripts cannot read; calls that change something repeat its CSRF value.

import { notify } from "./dom.js";

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

let onSignedOut = () => {};
export const whenSignedOut = (act) => { onSignedOut = act; };

export async function call(method, path, body, kind = "application/json") {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = kind;
  if (method !== "GET" && session) headers[session.csrf_header] = session.csrf;
  const content = body === undefined || kind !== "application/json" ? body : JSON.stringify(body);
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: content, credentials: "same-origin" });
  } catch {
    throw new Problem(0, { detail: "the server does not answer" });
  }
  const text = await answer.text();
  let found = null;
  try { found = text ? JSON.parse(text) : null; } catch { found = null; }
  if (answer.status === 401 && session) onSignedOut();
  if (!answer.ok) throw new Problem(answer.status, found ?? {});
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
  const answer = await fetch("/session", { credentials: "same-origin" });
  session = answer.ok ? await answer.json() : null;
  if (!session) localStorage.removeItem(HINT);
  return session;
}

export async function signIn(token) {
  const answer = await fetch("/session", { method: "POST", headers: { Authorization: `Bearer ${token}` }, credentials: "same-origin" });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Problem(answer.status, found);
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

// Listens to server-sent events until the returned function is called. The browser connects again by itself.
// A hidden page listens to nothing: browsers allow six connections to a server over HTTP/1.1.
export function listen(path, handlers) {
  let source = null;
  let checking = false;
  const open = () => {
    source = new EventSource(path);
    for (const [name, act] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => act(event.data === undefined ? null : JSON.parse(event.data)));
    }
    source.addEventListener("error", async () => {
      handlers.lost?.();
      if (source.readyState !== EventSource.CLOSED || checking) return;
      checking = true;
      if (!(await resume().catch(() => session))) onSignedOut();
    });
  };
  const show = () => {
    if (document.hidden) source.close();
    else if (source.readyState === EventSource.CLOSED) open();
  };
  open();
  document.addEventListener("visibilitychange", show);
  return () => {
    document.removeEventListener("visibilitychange", show);
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
