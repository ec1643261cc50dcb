// Recipes: their list, and an editor that checks the text as it is typed and tries it on one page.

import { attempt, call, get, may } from "./api.js";
import { confirmed, field, h, moment, number, replace, select, table, text, visible } from "./dom.js";

const NEW = `name: example
start: https://example.com/
pages:
  page:
    items:
      fields:
        title: {css: "title::text"}
`;

export function recipesView(main) {
  const list = h("div", null, h("p", { class: "loading" }, "Loading …"));
  const name = h("input", { required: true, pattern: "[A-Za-z0-9][A-Za-z0-9_\\-]{0,63}" });
  const open = (event) => { event.preventDefault(); location.hash = `#/recipes/${encodeURIComponent(name.value)}`; };
  replace(main, h("div", { class: "head" }, h("h1", null, "Recipes")),
    may("admin") ? h("form", { class: "filters", onsubmit: open }, field("Name of a new recipe", name), h("button", { type: "submit", class: "primary" }, "New recipe")) : null, list);
  get("/recipes").then((found) => replace(list, table("Recipes", [
    { title: "Recipe", isName: true, cell: (one) => h("a", { href: `#/recipes/${encodeURIComponent(one.name)}` }, text(one.name)) },
    { title: "Syntax", cell: (one) => one.syntax.toUpperCase() },
    { title: "Stored", cell: (one) => moment(one.stored) },
  ], found.recipes, "There are no recipes yet."))).catch((error) => replace(list, h("p", { class: "empty" }, error.message)));
}

export function recipeView(main, name) {
  const place = `/recipes/${encodeURIComponent(name)}`;
  const area = h("textarea", { id: "recipe", rows: 24, spellcheck: "false", autocapitalize: "off", autocomplete: "off", "aria-describedby": "verdict", readonly: !may("admin") });
  const verdict = h("div", { id: "verdict", class: "verdict", role: "status" });
  const outcome = h("div", { role: "status" });
  const details = h("div");
  const url = h("input", { type: "url", placeholder: "the first start URL" });
  const kind = h("input", { placeholder: "the first kind" });
  const syntax = select([["yaml", "YAML"], ["toml", "TOML"]], "yaml", () => check());
  let waiting = 0;
  let turn = 0;

  const type = () => `application/${syntax.value}`;

  async function check() {
    const mine = (turn += 1);
    let found;
    try {
      found = await call("POST", `${place}/check`, area.value, type());
    } catch (error) {
      if (mine === turn) replace(verdict, h("p", { class: "bad" }, error.message));
      return;
    }
    if (mine !== turn) return;
    if (found.valid) {
      replace(verdict, h("p", { class: "good" }, "The recipe is valid."));
      return;
    }
    const count = found.errors.length;
    replace(verdict, h("p", { class: "bad" }, count === 1 ? "The recipe has a mistake:" : `The recipe has ${count} mistakes:`),
      h("ul", null, found.errors.map((line) => {
        const at = /line (\d+)/.exec(line);
        return h("li", null, at ? h("button", { type: "button", class: "quiet", onclick: () => goTo(Number(at[1])) }, text(line)) : text(line));
      })),
      found.remedy ? h("p", { class: "hint" }, found.remedy) : null);
  }

  function goTo(line) {
    const start = area.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    area.focus();
    area.setSelectionRange(start, start + (area.value.split("\n")[line - 1]?.length ?? 0));
  }

  async function save() {
    if (await attempt(() => call("PUT", place, area.value, type()), `Recipe ${name} was saved. Current runs keep their text.`)) check();
  }

  async function tryOut(event) {
    event.preventDefault();
    replace(details);
    replace(outcome, h("p", { class: "loading" }, "Fetching the page …"));
    try {
      const found = await call("POST", `${place}/try`, { text: area.value, syntax: syntax.value, url: url.value.trim() || null, page: kind.value.trim() });
      if (found.error) replace(outcome, h("p", { class: "notice error" }, h("span", null, text(found.error), found.remedy ? `; ${found.remedy}` : "")));
      else drawTrial(found);
    } catch (error) {
      replace(outcome, h("p", { class: "notice error" }, h("span", null, error.message)));
    }
  }

  function drawTrial(found) {
    const fields = [...new Set(found.items.flatMap((item) => Object.keys(item ?? {})))];
    const shown = (value) => (value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));
    replace(outcome, h("p", null, text(found.url), ` responded with status ${found.status}: ${number(found.total_items)} items, ${number(found.total_requests)} requests.`));
    replace(details,
      table("Items of the page", fields.map((one) => ({ title: visible(one), class: "value", cell: (item) => text(shown(item?.[one])) })), found.items, "The page has no items."),
      table("Requests of the page", [
        { title: "URL", class: "url", cell: (one) => text(one.url) },
        { title: "Method", cell: (one) => one.method },
        { title: "Refused", cell: (one) => one.refused || "–" },
      ], found.requests, "The page leads to no requests."));
  }

  async function remove() {
    if (!(await confirmed(`Delete recipe ${name}?`, "Delete"))) return;
    if (await attempt(() => call("DELETE", place).then(() => true), `Recipe ${name} was deleted.`)) location.hash = "#/recipes";
  }

  const editing = may("admin");
  area.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(check, 400); });
  replace(main,
    h("div", { class: "head" }, h("h1", null, text(name)),
      editing ? h("div", { class: "actions" }, h("button", { type: "button", class: "primary", onclick: save }, "Save"), h("button", { type: "button", class: "danger", onclick: remove }, "Delete")) : null),
    h("div", { class: "editor" },
      h("div", null, h("div", { class: "filters" }, h("label", { for: "recipe" }, "Text of the recipe"), field("Syntax", syntax)), area, verdict),
      editing ? h("div", null, h("form", { class: "card", onsubmit: tryOut }, h("h2", null, "Try on one page"),
        h("div", { class: "fields" }, field("URL", url), field("Kind of page", kind)),
        h("p", { class: "hint" }, "Fetches the page and shows what the recipe makes of it. Nothing is stored."),
        h("div", { class: "actions" }, h("button", { type: "submit" }, "Try"))), h("div", { id: "result" }, outcome, details)) : null));
  get(place).then((found) => { area.value = found.text; syntax.value = found.syntax; if (editing) check(); })
    .catch((error) => { if (error.status === 404 && editing) { area.value = NEW.replace("example\n", `${name}\n`); check(); } else replace(verdict, h("p", { class: "bad" }, error.message)); });
  return () => clearTimeout(waiting);
}
