// The nodes of the service, and the audit log.

import { get, later, query } from "./api.js";
import { duration, h, moment, replace, searchBox, table, text } from "./dom.js";

export function nodesView(main) {
  const list = h("div", null, h("p", { class: "loading" }, "Loading …"));
  let cancel = () => {};
  let closed = false;
  async function load() {
    try {
      const found = await get("/nodes");
      if (closed) return;
      replace(list, table("Nodes", [
        { title: "Node", isName: true, class: "url", cell: (one) => text(one.name) },
        { title: "Machine", cell: (one) => text(one.host) },
        { title: "Process", class: "n", cell: (one) => one.pid },
        { title: "Version", cell: (one) => one.version },
        { title: "Up for", class: "n", cell: (one) => duration(Date.now() / 1000 - one.began) },
        { title: "Runs", class: "url", cell: (one) => one.running.map((run) => h("div", null, h("a", { href: `#/jobs/${encodeURIComponent(run.replace(/\.[^.]*$/, ""))}` }, text(run)))) },
        { title: "Errors", class: "url", cell: (one) => Object.entries(one.errors).map(([run, error]) => h("div", null, text(`${run}: ${error.error}`))) },
      ], found.nodes, "No node is alive."));
    } catch (error) {
      replace(list, h("p", { class: "empty" }, error.message));
    }
    if (!closed) cancel = later(load, 2000);
  }
  replace(main, h("div", { class: "head" }, h("h1", null, "Nodes")), list);
  load();
  return () => { closed = true; cancel(); };
}

export function auditView(main) {
  const list = h("div", null, h("p", { class: "loading" }, "Loading …"));
  let contains = "";
  let rows = [];
  async function load(before = null) {
    try {
      const found = await get(`/audit?${query({ before, contains, limit: 100 })}`);
      rows = before ? [...rows, ...found.entries] : found.entries;
      replace(list, table("Changes, the newest first", [
        { title: "Time", class: "time", cell: (one) => moment(one.time) },
        { title: "Who", cell: (one) => text(one.caller) },
        { title: "By", cell: (one) => (one.session ? "console" : "API") },
        { title: "Call", class: "url", cell: (one) => h("code", null, one.method, " ", text(one.path)) },
        { title: "Status", class: "n", cell: (one) => one.status },
        { title: "Details", class: "url", cell: (one) => text(Object.keys(one.details).length ? JSON.stringify(one.details) : "") },
        { title: "Node", class: "url", cell: (one) => text(one.node) },
      ], rows, "Nothing has been changed yet."),
      found.next ? h("button", { type: "button", onclick: () => load(found.next) }, "Load more") : null);
    } catch (error) {
      replace(list, h("p", { class: "empty" }, error.message));
    }
  }
  replace(main, h("div", { class: "head" }, h("h1", null, "Audit log")),
    h("div", { class: "filters" }, searchBox("Search by name or path", "", (found) => { contains = found; load(); })), list);
  load();
}
