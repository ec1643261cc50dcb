// Builds the page from text and elements. Nothing turns text into markup: the policy of the page forbids it as well.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff]|[\ud800-\udfff]/gu;

// Control and bidirectional characters of strangers, as escapes.
export const visible = (text) =>
  String(text).replace(HIDDEN, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);

const SVG = "http://www.w3.org/2000/svg";
const SVG_NAMES = new Set(["svg", "path", "line", "rect", "g", "text", "circle", "title"]);

// h("td", {class: "n", onclick: f}, "text", child, [children]); properties that are null or false are left out.
export function h(name, properties, ...children) {
  const element = SVG_NAMES.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked") element[key] = value;
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...nodes(children));
  return element;
}

const nodes = (children) =>
  children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false)
    .map((one) => (one instanceof Node ? one : document.createTextNode(visible(one))));

const SCROLLED = ".scroll, .bars dl";

// Replaces the content of an element. Views do so with each event, so the focus, the scroll positions and open details stay.
export function replace(element, ...children) {
  const focused = element.contains(document.activeElement) && element !== document.activeElement ? document.activeElement : null;
  const path = focused ? pathTo(focused, element) : null;
  const positions = [...element.querySelectorAll(SCROLLED)].map((one) => [one.scrollLeft, one.scrollTop]);
  const isOpen = [...element.querySelectorAll("details")].map((one) => one.open);
  element.replaceChildren(...nodes(children));
  element.querySelectorAll(SCROLLED).forEach((one, index) => {
    if (positions[index]) [one.scrollLeft, one.scrollTop] = positions[index];
  });
  element.querySelectorAll("details").forEach((one, index) => { if (isOpen[index]) one.open = true; });
  if (focused) focusSuccessor(focused, path, element);
}

// Focuses the element that has taken the place of another one, or the content of the page if none can be focused. Never move
// focus to a destructive button: a repeated key press could trigger it.
function focusSuccessor(gone, path, element) {
  const found = path.reduce((one, index) => one?.children[index], element);
  const isLike = found?.tagName === gone.tagName && (gone.classList.contains("danger") || !found.classList.contains("danger"));
  if (isLike) found.focus({ preventScroll: true });
  if (!isLike || document.activeElement !== found) document.getElementById("main").focus({ preventScroll: true });
}

function pathTo(target, element) {
  const path = [];
  for (let one = target; one !== element; one = one.parentElement) path.unshift([...one.parentElement.children].indexOf(one));
  return path;
}

export const text = (value) => h("bdi", null, value);

// --- figures -------------------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const rate = (value) => short.format(value ?? 0);
export const percent = (value) => `${short.format(100 * value)} %`;

export function amount(bytes) {
  let value = bytes ?? 0;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (value < 1000) return `${short.format(value)} ${unit}`;
    value /= 1000;
  }
  return `${short.format(value)} TB`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds > 0 && seconds < 1) return `${seconds < 0.01 ? short.format(1000 * seconds) : Math.round(1000 * seconds)} ms`;
  if (seconds < 60) return `${short.format(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export const moment = (seconds) =>
  seconds ? new Date(seconds * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "–";

// --- parts that several views share -------------------------------------------------------------------------

const ACTIVE = new Set(["running"]);
const BAD = new Set(["failed"]);
const CALM = new Set(["paused", "pausing", "stopping", "waiting"]);

export function stateBadge(state) {
  const kind = ACTIVE.has(state) ? "good" : BAD.has(state) ? "bad" : CALM.has(state) ? "calm" : "plain";
  return h("span", { class: `badge ${kind}` }, state);
}

// columns: {title, class?, cell(row), sort?}; a table that scrolls sideways where it does not fit.
export function table(caption, columns, rows, empty = "Nothing here.") {
  const head = h("tr", null, columns.map((column) => h("th", { scope: "col", class: column.class, "aria-sort": column.sorted }, column.head ?? column.title)));
  const body = rows.map((row) =>
    h("tr", null, columns.map((column, index) =>
      h(index === 0 && column.isName ? "th" : "td",
        { class: column.class, scope: index === 0 && column.isName ? "row" : null, "data-title": column.title }, column.cell(row)))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", null, h("caption", null, caption), h("thead", null, head), h("tbody", null, body)),
    rows.length ? null : h("p", { class: "empty" }, empty));
}

export function pager(offset, limit, total, go) {
  const last = Math.min(offset + limit, total);
  return h("nav", { class: "pager", "aria-label": "Pages" },
    h("button", { type: "button", disabled: offset === 0, onclick: () => go(Math.max(0, offset - limit)) }, "Previous"),
    h("span", null, total ? `${number(offset + 1)}–${number(last)} of ${number(total)}` : "0 of 0"),
    h("button", { type: "button", disabled: last >= total, onclick: () => go(offset + limit) }, "Next"));
}

export function field(label, control, hint) {
  return h("label", { class: "field" }, h("span", null, label), control, hint ? h("small", null, hint) : null);
}

export function select(options, value, onchange) {
  const control = h("select", { onchange: () => onchange(control.value) },
    options.map(([key, title]) => h("option", { value: key }, title)));
  control.value = value;
  return control;
}

export function searchBox(label, value, onsearch) {
  let waiting = 0;
  const input = h("input", {
    type: "search", value, placeholder: label, "aria-label": label, spellcheck: "false",
    oninput: () => { clearTimeout(waiting); waiting = setTimeout(() => onsearch(input.value.trim()), 250); },
  });
  return input;
}

export function notify(message, kind = "info") {
  const dismiss = () => {
    const hadFocus = notice.contains(document.activeElement);
    notice.remove();
    if (hadFocus) document.getElementById("main").focus({ preventScroll: true });
  };
  const notice = h("div", { class: `notice ${kind}` }, h("span", null, message),
    h("button", { type: "button", class: "close", "aria-label": "Dismiss", onclick: dismiss }, "×"));
  document.getElementById("notices").append(notice);
  if (kind === "info") setTimeout(dismiss, 6000);
}

// A dialog that asks before something that cannot be undone. The focus returns to the button that opened it, also if events
// have drawn that button again meanwhile.
export function confirmed(question, action) {
  const opener = document.activeElement;
  const main = document.getElementById("main");
  const path = main.contains(opener) && opener !== main ? pathTo(opener, main) : null;
  return new Promise((resolve) => {
    const close = () => {
      dialog.remove();
      if (path && !opener.isConnected) focusSuccessor(opener, path, main);
      resolve(dialog.returnValue === "yes");
    };
    const dialog = h("dialog", { "aria-labelledby": "question", onclose: close },
      h("p", { id: "question" }, question),
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: () => dialog.close("no") }, "Cancel"),
        h("button", { type: "button", class: "danger", onclick: () => dialog.close("yes") }, action)));
    document.body.append(dialog);
    dialog.showModal();
  });
}
