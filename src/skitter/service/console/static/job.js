// One job: its plots and figures, and a tab for each kind of detail.

import { attempt, call, get, later, listen, may, offers, query } from "./api.js";
import { amount, confirmed, duration, field, h, moment, number, pager, percent, rate, replace, searchBox, select, stateBadge, table, text, visible } from "./dom.js";
import { jobActions } from "./jobs.js";
import { barChart, levels, lineChart, rates } from "./plots.js";

const MAX_POINTS = 900;

export function jobView(main, name, part) {
  const tabs = [["overview", "Overview"], ["hosts", "Hosts"], ["workers", "Workers"], ["failures", "Dead letters"],
    ...(offers("items") ? [["items", "Items"]] : []), ...(offers("log") ? [["log", "Log"]] : []), ["settings", "Settings"]];
  const place = `/jobs/${encodeURIComponent(name)}`;
  const state = h("span", { id: "state", role: "status" });
  const actions = h("div", { class: "actions" });
  const problems = h("div");
  const content = h("section");
  const points = [];
  let job = null;
  let shownState = "";
  let stop = () => {};
  const view = (VIEWS[part] ?? VIEWS.overview)(content, place, () => job, points);

  function draw() {
    if (job.state !== shownState) { // re-rendering every second would swallow clicks
      shownState = job.state;
      replace(state, stateBadge(job.state));
      replace(actions, jobActions(job, watch));
    }
    const reasons = Object.entries(job.node_errors ?? {});
    replace(problems,
      job.run?.reason ? h("p", { class: `notice ${job.state === "failed" ? "error" : ""}` }, h("span", null, job.run.reason)) : null,
      reasons.map(([node, error]) => h("p", { class: "notice error" }, h("span", null, h("b", null, text(node)), ": ", text(error.error), error.remedy ? `; ${error.remedy}` : ""))),
      Object.entries(job.queues_without_workers ?? {}).map(([queue, waiting]) => h("p", { class: "notice error" }, h("span", null, `No worker serves queue ${queue}, where ${number(waiting)} requests wait.`))));
    view?.update?.(job);
  }

  function watch() {
    stop();
    stop = listen(`${place}/events?follow=true`, {
      history: (found) => { points.splice(0, points.length, ...found); },
      update: (found) => { job = found; note(points, job); draw(); },
      gone: () => { replace(content, h("p", { class: "empty" }, "This job no longer exists.")); stop(); },
      problem: (found) => replace(problems, h("p", { class: "notice error" }, h("span", null, found.detail))),
      lost: () => { if (!job) get(place).catch((error) => replace(content, h("p", { class: "empty" }, error.message))); },
    });
  }

  replace(main, h("div", { class: "head" }, h("h1", null, text(name)), state, actions), problems,
    h("nav", { class: "tabs", "aria-label": "Parts of the job" }, tabs.map(([key, title]) =>
      h("a", { href: `#${place}/${key}`, "aria-current": key === part ? "page" : null }, title))),
    content);
  main.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // on a phone, tabs scroll
  watch();
  return () => { stop(); view?.close?.(); };
}

function note(points, job) {
  const point = job.figures;
  if (!point || (points.length && point.at <= points.at(-1).at)) return;
  points.push(point);
  if (points.length > MAX_POINTS) points.shift();
}

function group(counters, name) {
  return Object.entries(counters).filter(([key]) => key.startsWith(`${name}/`))
    .map(([key, value]) => [key.slice(name.length + 1), value]).sort((one, other) => other[1] - one[1]);
}

function attempts(counters) {
  const found = new Map(group(counters, "failed"));
  for (const [kind, count] of group(counters, "retried")) found.set(kind, (found.get(kind) ?? 0) + count);
  return [...found].sort((one, other) => other[1] - one[1]);
}

// --- overview ---------------------------------------------------------------------------------------------------

function overview(content, _place, _job, points) {
  replace(content, h("p", { class: "loading" }, "Waiting for figures …"));
  return {
    update(job) {
      const counts = job.counts;
      if (!counts) {
        replace(content, h("p", { class: "empty" }, job.run ? "No node has started the run yet." : "This job has no run yet."));
        return;
      }
      const counters = counts.counters;
      const pace = job.fleet.reduce((sum, worker) => sum + worker.report.pages_per_second, 0);
      const kinds = [...new Set(points.flatMap((point) => Object.keys(point.errors)))]
        .map((kind) => [kind, points.at(-1)?.errors[kind] ?? 0]).sort((one, other) => other[1] - one[1]).slice(0, 5).map(([kind]) => kind);
      const figures = [["Pages", number(counters.pages ?? 0)], ["Pages/s", rate(pace)], ["Items", number(counters.items ?? 0)],
        ["Received", amount(counters.bytes)], ["Queued", number(counts.queued)], ["Delayed", number(counts.delayed)],
        ["Next delayed request", counts.next_due ? duration(counts.next_due) : "–"],
        ["In flight", number(counts.leased)], ["Done", number(counts.done)], ["Dead letters", number(counts.failed)],
        ["Hosts with work", number(counts.slots)], ["Workers", number(job.fleet.length)], ["Oldest lease", counts.oldest_lease ? duration(counts.oldest_lease) : "–"],
        ["Fetch time (p50)", duration(job.latency?.p50)], ["Fetch time (p95)", duration(job.latency?.p95)], ["Fetch time (p99)", duration(job.latency?.p99)]];
      const latencies = points.filter((point) => point.latency);
      const depths = group(counters, "depth").map(([depth, pages]) => [Number(depth), pages]).sort((one, other) => one[0] - other[0])
        .map(([depth, pages]) => [`depth ${depth}${depth === 50 ? " and more" : ""}`, pages]);
      replace(content,
        h("dl", { class: "figures" }, figures.map(([title, value]) => h("div", null, h("dt", null, title), h("dd", { "data-figure": title }, value)))),
        counts.reason && !job.run?.reason ? h("p", { class: "notice" }, h("span", null, `Limit reached: ${counts.reason}`)) : null,
        h("div", { class: "plots" },
          lineChart("Throughput", [{ name: "pages/s", points: rates(points, "pages") }, { name: "items/s", points: rates(points, "items") }]),
          lineChart("Queue", [{ name: "queued", points: levels(points, "queued") }, { name: "delayed", points: levels(points, "delayed") }, { name: "in flight", points: levels(points, "leased") }], number),
          lineChart("Errors per second by kind", kinds.length ? kinds.map((kind) => ({ name: kind, points: rates(points, (point) => point.errors[kind] ?? 0) })) : [{ name: "errors", points: points.map((point) => [point.at, 0]) }]),
          lineChart("Fetch time", ["p50", "p95", "p99"].map((name) => ({ name, points: latencies.map((point) => [point.at, point.latency[name]]) })), duration)),
        h("div", { class: "plots" },
          barChart("Fullest hosts by queued requests", counts.busiest.slice(0, 8).map((slot) => [slot.key, slot.queued]), "Nothing is queued."),
          barChart("Pages by depth", depths, "No page yet."),
          barChart("Responses by status", group(counters, "status"), "No response yet."),
          barChart("Failed attempts by kind", attempts(counters), "No errors."),
          barChart("Refused URLs by reason", group(counters, "refused"), "No URL was refused.")),
        passes(job));
    },
  };
}

// The verdicts of monitors, of the running pass and of those that have ended.
function passes(job) {
  const known = [...(job.violated ?? []), ...(job.passes ?? []).flatMap((one) => one.verdicts.map((verdict) => ({ ...verdict, number: one.number })))];
  if (known.length === 0) return null;
  const verdict = (one) => (one.passed === null ? "not judged" : one.passed ? "passed" : "violated");
  return table("Monitors", [
    { title: "Rule", isName: true, class: "url", cell: (one) => text(one.monitor === one.rule ? one.rule : `${one.monitor}: ${one.rule}`) },
    { title: "Verdict", cell: (one) => h("span", { class: `badge ${one.passed === false ? "bad" : one.passed ? "good" : "plain"}` }, verdict(one)) },
    { title: "Figures", class: "url", cell: (one) => text(Object.entries(one.values).map(([name, value]) => `${name} = ${rate(value)}`).join(", ")) },
    { title: "Pass", class: "n", cell: (one) => one.number ?? "now" },
  ], known);
}

// --- hosts ------------------------------------------------------------------------------------------------------

const ORDERS = [["pages", "Most pages"], ["failed", "Most failures"], ["failures", "Highest failure rate"], ["queued", "Fullest"], ["fetch_time", "Slowest"], ["delay", "Longest delay"],
  ["retried", "Most retries"], ["bytes", "Most data"], ["items", "Most items"]];

function hosts(content, place) {
  const choice = { order: "pages", contains: "", offset: 0 };
  const list = h("div");
  let cancel = () => {};
  let closed = false;

  async function load() {
    cancel();
    try {
      const found = await get(`${place}/hosts?${query({ ...choice, limit: 100 })}`);
      if (closed) return;
      replace(list, table("Hosts", [
        { title: "Host", isName: true, class: "url", cell: (host) => text(host.host) },
        { title: "Pages", class: "n", cell: (host) => number(host.pages) },
        { title: "Items", class: "n", cell: (host) => number(host.items) },
        { title: "Received", class: "n", cell: (host) => amount(host.bytes) },
        { title: "Failed", class: "n", cell: (host) => number(host.failed) },
        { title: "Failure rate", class: "n", cell: (host) => percent(host.failures) },
        { title: "Retried", class: "n", cell: (host) => number(host.retried) },
        { title: "Fetch time", class: "n", cell: (host) => duration(host.fetch_time) },
        { title: "Queued", class: "n", cell: (host) => number(host.queued) },
        { title: "Delay", class: "n", cell: (host) => duration(host.delay) },
        { title: "Paused for", class: "n", cell: (host) => (host.paused_for ? duration(host.paused_for) : "–") },
      ], found.hosts, "No host yet."), pager(choice.offset, 100, found.total, (offset) => { choice.offset = offset; load(); }));
    } catch (error) {
      replace(list, h("p", { class: "empty" }, error.message));
    }
    if (!closed) cancel = later(load, 3000);
  }

  const order = select(ORDERS, choice.order, (value) => { choice.order = value; choice.offset = 0; load(); });
  order.setAttribute("aria-label", "Order");
  replace(content, h("div", { class: "filters" }, searchBox("Search by host", "", (found) => { choice.contains = found; choice.offset = 0; load(); }), order),
    list, h("p", { class: "hint" }, "The order is over all hosts. Queue and delay are those of hosts with requests."));
  load();
  return { close() { closed = true; cancel(); } };
}

// --- workers ----------------------------------------------------------------------------------------------------

function workers(content) {
  replace(content, h("p", { class: "loading" }, "Loading …"));
  return {
    update(job) {
      const fleet = job.fleet ?? [];
      const machines = new Map();
      for (const { report } of fleet) {
        const known = machines.get(report.host) ?? { host: report.host, workers: 0, fetching: 0, concurrency: 0, pages: 0, pace: 0 };
        known.workers += 1;
        known.fetching += report.fetching;
        known.concurrency += report.concurrency;
        known.pages += report.pages;
        known.pace += report.pages_per_second;
        machines.set(report.host, known);
      }
      replace(content,
        table("Machines", [
          { title: "Machine", isName: true, cell: (one) => text(one.host) },
          { title: "Workers", class: "n", cell: (one) => number(one.workers) },
          { title: "Pages/s", class: "n", cell: (one) => rate(one.pace) },
          { title: "Pages", class: "n", cell: (one) => number(one.pages) },
          { title: "In flight", class: "n", cell: (one) => `${one.fetching}/${one.concurrency}` },
        ], [...machines.values()], "No machine works on this job now."),
        table("Workers", [
          { title: "Worker", isName: true, class: "url", cell: (one) => text(one.report.name) },
          { title: "Machine", cell: (one) => text(one.report.host) },
          { title: "Process", class: "n", cell: (one) => one.report.pid },
          { title: "Age", class: "n", cell: (one) => duration(one.report.age) },
          { title: "Pages/s", class: "n", cell: (one) => rate(one.report.pages_per_second) },
          { title: "Pages", class: "n", cell: (one) => number(one.report.pages) },
          { title: "Items", class: "n", cell: (one) => number(one.report.items) },
          { title: "In flight", class: "n", cell: (one) => `${one.report.fetching}/${one.report.concurrency}` },
          { title: "Leases", class: "n", cell: (one) => number(one.report.held) },
          { title: "Heard", class: "n", cell: (one) => `${Math.round(one.heard)} s ago` },
        ], fleet, "No worker runs now."));
    },
  };
}

// --- dead letters -----------------------------------------------------------------------------------------------

function failures(content, place) {
  const choice = { kind: "", contains: "" };
  const list = h("div");
  const kinds = h("select", { "aria-label": "Kind of error", onchange: () => { choice.kind = kinds.value; load(); } });
  const marked = new Set();
  let rows = [];
  let known = "";

  async function load(after = 0) {
    try {
      const found = (await get(`${place}/failures?${query({ ...choice, after, limit: 100 })}`)).failures;
      rows = after ? [...rows, ...found] : found;
      const listed = new Set(rows.map((letter) => letter.id));
      for (const id of marked) if (!listed.has(id)) marked.delete(id);
      draw(found.length === 100);
    } catch (error) {
      replace(list, h("p", { class: "empty" }, error.message));
    }
  }

  async function settle(action, ids) {
    const what = ids ? `${ids.length} dead letters` : choice.kind || choice.contains ? "all dead letters that match" : "all dead letters";
    if (action === "drop" && !(await confirmed(`Drop ${what}? Their URLs stay known, so they are not fetched again.`, "Drop"))) return;
    const body = ids ? { ids } : { kind: choice.kind || null, contains: choice.contains };
    const done = await attempt(() => call("POST", `${place}/failures/${action}`, body),
      (result) => (action === "retry" ? `${number(result.queued)} requests were queued again.` : `${number(result.dropped)} requests were dropped.`));
    if (done) load();
  }

  function draw(more) {
    const count = h("span");
    const chosen = () => {
      replace(count, marked.size ? `${marked.size} selected` : "");
      for (const button of content.querySelectorAll("button.selected")) button.disabled = marked.size === 0;
    };
    const mark = (letter) => {
      const box = h("input", { type: "checkbox", checked: marked.has(letter.id), "aria-label": `Select ${visible(letter.url)}`, onchange: () => { if (box.checked) marked.add(letter.id); else marked.delete(letter.id); chosen(); } });
      return box;
    };
    const steering = may("operate");
    replace(list,
      steering ? h("div", { class: "actions bar-actions" },
        h("button", { type: "button", class: "selected", disabled: true, onclick: () => settle("retry", [...marked]) }, "Retry selected"),
        h("button", { type: "button", class: "selected danger", disabled: true, onclick: () => settle("drop", [...marked]) }, "Drop selected"),
        h("button", { type: "button", disabled: rows.length === 0, onclick: () => settle("retry", null) }, "Retry all that match"),
        h("button", { type: "button", class: "danger", disabled: rows.length === 0, onclick: () => settle("drop", null) }, "Drop all that match"), count) : null,
      table("Dead letters", [
        ...(steering ? [{ title: "Select", class: "mark", head: h("span", { class: "only-read" }, "Select"), cell: mark }] : []),
        { title: "URL", class: "url", cell: (letter) => text(letter.url) },
        { title: "Error", class: "url", cell: (letter) => text(letter.error) },
        { title: "Attempts", class: "n", cell: (letter) => number(letter.attempts) },
        { title: "Failed at (UTC)", class: "time", cell: (letter) => letter.failed_at },
        { title: "Request", cell: (letter) => h("details", null, h("summary", null, "Details"), h("pre", { tabindex: "0" }, JSON.stringify(letter.request ?? letter.request_error, null, 2))) },
      ], rows, "No dead letters."),
      more ? h("button", { type: "button", onclick: () => load(rows.at(-1).id) }, "Load more") : null);
    chosen();
  }

  replace(content, h("div", { class: "filters" }, searchBox("Search in URL and error", "", (found) => { choice.contains = found; load(); }), kinds), list);
  load();
  return {
    update(job) {
      const counters = job.counts?.counters ?? {};
      const left = group(counters, "failed").map(([kind, count]) => [kind, count - (counters[`settled/${kind}`] ?? 0)]).filter(([, count]) => count > 0);
      const shown = JSON.stringify(left);
      if (shown === known) return;
      const isFirst = known === ""; // the list has just been asked for
      known = shown;
      replace(kinds, h("option", { value: "" }, "All kinds"), left.map(([kind, count]) => h("option", { value: kind }, `${visible(kind)} (${number(count)})`)));
      kinds.value = choice.kind;
      if (!isFirst && marked.size === 0) load();
    },
  };
}

// --- items ------------------------------------------------------------------------------------------------------

function items(content, place) {
  const list = h("div");
  const starts = [null];
  const LIMIT = 50;

  async function load() {
    try {
      const found = await get(`${place}/items?${query({ after: starts.at(-1), limit: LIMIT })}`);
      const fields = [...new Set(found.items.flatMap((item) => (item && typeof item === "object" && !Array.isArray(item) ? Object.keys(item) : ["value"])))].slice(0, 40);
      const value = (item, name) => {
        const one = item && typeof item === "object" && !Array.isArray(item) ? item[name] : item;
        const shown = one === undefined || one === null ? "" : typeof one === "object" ? JSON.stringify(one) : String(one);
        return shown.length > 300 ? `${shown.slice(0, 300)}…` : shown;
      };
      const page = starts.length - 1;
      replace(list,
        table("Items", fields.map((name) => ({ title: visible(name), class: "value", cell: (item) => text(value(item, name)) })), found.items, "No items yet."),
        h("nav", { class: "pager", "aria-label": "Pages" },
          h("button", { type: "button", disabled: page === 0, onclick: () => { starts.pop(); load(); } }, "Previous"),
          h("span", null, found.items.length ? `${number(page * LIMIT + 1)}–${number(page * LIMIT + found.items.length)}` : "0"),
          h("button", { type: "button", disabled: found.items.length < LIMIT || !found.next, onclick: () => { starts.push(found.next); load(); } }, "Next")));
    } catch (error) {
      replace(list, h("p", { class: "empty" }, error.message));
    }
  }

  replace(content, h("div", { class: "actions bar-actions" },
    h("a", { class: "button", href: `${place}/items.jsonl`, download: "items.jsonl" }, "Download as JSON Lines"),
    h("button", { type: "button", onclick: () => load() }, "Refresh")), list);
  load();
  return null;
}

// --- log --------------------------------------------------------------------------------------------------------

function log(content, place, getJob) {
  const choice = { level: "info", contains: "" };
  const lines = h("div", { class: "log", tabindex: "0", role: "log", "aria-label": "Log of the run" });
  const follow = h("input", { type: "checkbox", checked: true });
  let after = 0;
  let cancel = () => {};
  let closed = false;
  let turn = 0;

  const draw = (line) => h("div", { class: `line ${line.level}` },
    h("span", { class: "time" }, line.time.slice(11, 23)), h("span", { class: "level" }, line.level),
    h("span", { class: "message" }, text(line.message), line.traceback ? h("pre", null, line.traceback) : null,
      h("small", null, text(`${line.logger} · ${line.node}${line.worker ? ` · ${line.worker}` : ""}`))));

  async function load(first) {
    cancel();
    const mine = first ? (turn += 1) : turn;
    try {
      const found = await get(`${place}/log?${query({ ...choice, ...(first ? { last: 500 } : { after, limit: 500 }) })}`);
      if (closed || mine !== turn) return;
      if (first) replace(lines);
      after = found.next;
      lines.append(...found.lines.map(draw));
      while (lines.childElementCount > 2000) lines.firstElementChild.remove();
      if (first && found.lines.length === 0) replace(lines, h("p", { class: "empty" }, "No lines."));
      else if (found.lines.length) lines.querySelector("p.empty")?.remove();
      if (found.lines.length && follow.checked) lines.scrollTop = lines.scrollHeight;
    } catch (error) {
      if (!closed && first) replace(lines, h("p", { class: "empty" }, error.message));
    }
    const isLive = ["running", "waiting", "pausing", "stopping", undefined].includes(getJob()?.state);
    if (!closed && mine === turn) cancel = later(() => load(false), isLive ? 1000 : 5000);
  }

  const level = select([["debug", "Debug and above"], ["info", "Info and above"], ["warning", "Warnings and errors"], ["error", "Errors"]], choice.level, (value) => { choice.level = value; load(true); });
  level.setAttribute("aria-label", "Level");
  replace(content, h("div", { class: "filters" }, searchBox("Search in the log", "", (found) => { choice.contains = found; load(true); }), level,
    h("label", { class: "check" }, follow, " Follow"), h("a", { class: "button", href: `${place}/log.txt`, download: "log.txt" }, "Download")), lines);
  load(true);
  return { close() { closed = true; cancel(); } };
}

// --- settings ---------------------------------------------------------------------------------------------------

function settings(content, place) {
  const schedule = h("div");
  const list = h("div", null, h("p", { class: "loading" }, "Loading …"));
  let declared = null;
  let job = null;
  let known = "";
  let stale = false; // whether a change of this page is not shown yet

  const shown = (value) => (value === null || value === undefined ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value));
  const valueOf = (name, fallback) => job.changes?.[name] ?? job.settings?.[name] ?? fallback;
  const sourceOf = (name) => (job.changes && name in job.changes ? "changed live" : job.settings && name in job.settings ? "job" : "default or spider");

  function editor(one) {
    const input = h("input", { value: shown(valueOf(one.name, one.default)), "aria-label": one.name, spellcheck: "false" });
    const submit = async (event) => {
      event.preventDefault();
      const body = { settings: { [one.name]: input.value.trim() === "none" ? null : asValue(input.value.trim()) } };
      if (await attempt(() => call("PATCH", `${place}/settings`, body), `${one.name} was changed for all workers.`)) stale = true;
    };
    return h("form", { class: "inline", onsubmit: submit }, input, h("button", { type: "submit" }, "Apply"));
  }

  function draw() {
    const canChange = may("operate") && job.run;
    replace(schedule, job.schedule !== undefined && offers("runs") ? scheduleForm(place, job) : null);
    const row = (isLive) => [
      { title: "Setting", isName: true, cell: (one) => h("code", null, one.name) },
      { title: "Value", cell: (one) => (isLive && canChange ? editor(one) : h("code", null, shown(valueOf(one.name, one.default)))) },
      { title: "From", cell: (one) => sourceOf(one.name) },
      { title: "Unit", cell: (one) => one.unit },
      { title: "Meaning", class: "help", cell: (one) => one.help.replaceAll("`", "") },
    ];
    const isSet = (one) => sourceOf(one.name) !== "default or spider";
    replace(list,
      table("Settings that can change during a run", row(true), declared.filter((one) => one.live)),
      canChange && Object.keys(job.changes ?? {}).length ? h("button", { type: "button", onclick: reset }, "Undo all changes") : null,
      table("Other settings of this job", row(false), declared.filter((one) => !one.live && isSet(one)), "The job sets no others."),
      h("details", null, h("summary", null, "All other settings"), table("Settings with their defaults", row(false), declared.filter((one) => !one.live && !isSet(one)))));
  }

  async function reset() {
    if (await attempt(() => call("PATCH", `${place}/settings`, { settings: {}, reset: true }), "The changes were undone.")) stale = true;
  }

  get("/settings").then((found) => { declared = found.settings; if (job) draw(); }).catch((error) => replace(list, h("p", { class: "empty" }, error.message)));
  replace(content, schedule, list);
  return {
    update(found) {
      job = found;
      const now = JSON.stringify([found.settings, found.changes, found.schedule, Boolean(found.run)]);
      const isEditing = content.contains(document.activeElement) && document.activeElement.tagName === "INPUT";
      if (declared && now !== known && (stale || !isEditing)) {
        stale = false;
        known = now;
        draw();
      }
    },
  };
}

function scheduleForm(place, job) {
  const input = h("input", { value: job.schedule, placeholder: "0 4 * * *", disabled: !may("operate") });
  const submit = async (event) => {
    event.preventDefault();
    await attempt(() => call("PUT", `${place}/schedule`, { schedule: input.value.trim() }), "The schedule was changed.");
  };
  return h("form", { class: "card", onsubmit: submit },
    h("div", { class: "fields" }, field("Schedule of new runs", input, job.due ? `Next run: ${moment(job.due)}` : "Five cron fields in UTC. Empty: only on request.")),
    may("operate") ? h("div", { class: "actions" }, h("button", { type: "submit" }, "Change schedule")) : null);
}

function asValue(given) {
  if (given === "true" || given === "false") return given === "true";
  if (given !== "" && !Number.isNaN(Number(given))) return Number(given);
  try { return JSON.parse(given); } catch { return given; }
}

const VIEWS = { overview, hosts, workers, failures, items, log, settings };
