// The overview of all jobs, live, and the form for a new one.

import { attempt, call, get, listen, may, offers, query } from "./api.js";
import { confirmed, field, h, number, pager, rate, replace, searchBox, select, stateBadge, table } from "./dom.js";

const STATES = ["running", "waiting", "pausing", "paused", "stopping", "stopped", "finished", "failed", "scheduled", "new"];
const LIMIT = 50;

export function jobsView(main) {
  const choice = { contains: "", state: "", offset: 0 };
  const list = h("div", null, h("p", { class: "loading" }, "Loading …"));
  const summary = h("p", { class: "summary" });
  const forms = h("div");
  const opener = h("button", { type: "button", class: "primary", onclick: () => { replace(forms, newJob(close)); forms.querySelector("input").focus(); } }, "New job");
  const close = () => { replace(forms); opener.focus(); };
  let stop = () => {};

  function draw(found) {
    const states = Object.entries(found.states);
    replace(summary, states.map(([state, count]) =>
      h("button", { type: "button", class: "chip", "aria-pressed": String(choice.state === state), onclick: () => { choice.state = choice.state === state ? "" : state; choice.offset = 0; watch(); } },
        stateBadge(state), number(count))));
    const figure = (job, name) => number(job.figures?.[name]);
    replace(list, table("Jobs", [
      { title: "Job", isName: true, cell: (job) => h("a", { href: `#/jobs/${encodeURIComponent(job.name)}` }, h("bdi", null, job.name)) },
      { title: "State", cell: (job) => stateBadge(job.state) },
      { title: "Pages", class: "n", cell: (job) => figure(job, "pages") },
      { title: "Pages/s", class: "n", cell: (job) => (job.figures && job.state === "running" ? rate(job.figures.pages_per_second) : "–") },
      { title: "Items", class: "n", cell: (job) => figure(job, "items") },
      { title: "Queued", class: "n", cell: (job) => figure(job, "queued") },
      { title: "Failed", class: "n", cell: (job) => figure(job, "failed") },
      { title: "Workers", class: "n", cell: (job) => figure(job, "workers") },
      { title: "Runs", cell: (job) => h("bdi", null, job.recipe || job.spider || (job.tasks ? "tasks" : "–")) },
    ], found.jobs, choice.contains || choice.state ? "No job matches." : "There are no jobs yet."),
    pager(choice.offset, LIMIT, found.total, (offset) => { choice.offset = offset; watch(); }));
  }

  function watch() {
    stop();
    const values = query({ ...choice, limit: LIMIT });
    let live = false;
    get(`/jobs?${values}`).then((found) => { if (!live) draw(found); }).catch(() => null); // the first paint; figures follow
    stop = listen(`/events?${values}&figures=true&follow=true`, { update: (found) => { live = true; draw(found); } });
  }

  const states = select([["", "All states"], ...STATES.map((state) => [state, state])], "", (state) => { choice.state = state; choice.offset = 0; watch(); });
  states.setAttribute("aria-label", "State");
  replace(main,
    h("div", { class: "head" }, h("h1", null, "Jobs"),
      may("admin") && offers("recipes") ? opener : null),
    forms,
    h("div", { class: "filters" }, searchBox("Search by name", "", (found) => { choice.contains = found; choice.offset = 0; watch(); }), states),
    summary, list);
  watch();
  return () => stop();
}

function newJob(cancel) {
  const name = h("input", { required: true, pattern: "[A-Za-z0-9][A-Za-z0-9_\\-]{0,63}" });
  const recipe = h("select", { required: true });
  const workers = h("input", { type: "number", min: 1, max: 64, value: 1 });
  const pages = h("input", { type: "number", min: 1 });
  const schedule = h("input", { placeholder: "0 4 * * *" });
  get("/recipes").then((found) => replace(recipe, found.recipes.map((one) => h("option", { value: one.name }, one.name)))).catch(() => null);
  const submit = async (event) => {
    event.preventDefault();
    const body = { name: name.value, recipe: recipe.value, workers: Number(workers.value), schedule: schedule.value };
    if (pages.value) body.settings = { max_pages: Number(pages.value) };
    if (await attempt(() => call("POST", "/jobs", body), `Job ${name.value} was created.`)) location.hash = `#/jobs/${name.value}`;
  };
  return h("form", { class: "card", onsubmit: submit }, h("h2", null, "New job"),
    h("div", { class: "fields" },
      field("Name", name), field("Recipe", recipe), field("Processes on each node", workers),
      field("Maximum number of pages", pages, "Empty: no limit."), field("Schedule", schedule, "Five cron fields in UTC. Empty: start now.")),
    h("div", { class: "actions" }, h("button", { type: "submit", class: "primary" }, "Create"),
      h("button", { type: "button", onclick: cancel }, "Cancel")));
}

// The buttons that change the state of a job.
export function jobActions(job, changed) {
  if (!may("operate")) return null;
  const act = (name, message) => async () => {
    if (await attempt(() => call("POST", `/jobs/${encodeURIComponent(job.name)}/${name}`), message)) changed();
  };
  const remove = async () => {
    if (!(await confirmed(`Delete job ${job.name} with its items and logs?`, "Delete"))) return;
    if ((await attempt(() => call("DELETE", `/jobs/${encodeURIComponent(job.name)}`).then(() => true), `Job ${job.name} was deleted.`))) location.hash = "#/jobs";
  };
  const isActive = ["running", "waiting"].includes(job.state);
  const isOver = ["finished", "failed", "stopped", "new", "scheduled"].includes(job.state);
  const resumable = ["paused", "stopped", "failed", "pausing", "stopping"].includes(job.state);
  return [
    isActive ? h("button", { type: "button", onclick: act("pause", "The job pauses.") }, "Pause") : null,
    resumable ? h("button", { type: "button", class: "primary", onclick: act("resume", "The job continues.") }, "Resume") : null,
    isActive || job.state === "paused" ? h("button", { type: "button", onclick: act("stop", "The job stops.") }, "Stop") : null,
    isOver && offers("runs") ? h("button", { type: "button", onclick: act("start", "A new run has started.") }, "Start again") : null,
    may("admin") && offers("runs") ? h("button", { type: "button", class: "danger", onclick: remove }, "Delete") : null];
}
