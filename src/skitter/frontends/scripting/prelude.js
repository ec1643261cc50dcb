// The `ctx` object of a rule: the page, and methods that return items and requests.
"use strict";
var __run = (function (select) {
  delete globalThis.__select;
  function selected(kind, query) {
    const answer = JSON.parse(select(kind, String(query)));
    if (answer.error) throw new Error(answer.error);
    return answer.found;
  }
  // The groups of every match, or all of it without groups.
  function* matches(text, regexp) {
    const source = regexp instanceof RegExp ? regexp.source : String(regexp);
    const flags = regexp instanceof RegExp ? regexp.flags.replace("g", "") : "";
    for (const found of text.matchAll(new RegExp(source, flags + "g"))) yield [...found];
  }
  return function (rule, names, values) {
    const given = { items: [], requests: [] };
    const words = Object.fromEntries(names.map((name, place) => [name, values[place]]));
    const page = words.__page;
    delete words.__page;
    const ctx = {
      ...words,
      url: page.url,
      text: page.text,
      status: page.status ?? 200,
      css: (query) => selected("css", query),
      xpath: (query) => selected("xpath", query),
      jmespath: (query) => selected("jmespath", query),
      json: () => JSON.parse(page.text),
      matches: (regexp) => [...matches(page.text, regexp)],
      output: (item) => { given.items.push(item); },
      follow: (url, options = {}) => { given.requests.push({ ...options, url: String(url) }); },
      // The first group (or all) of each match is a link to a page of that rule.
      parseJSReg: (rule, regexp, options = {}) => {
        for (const found of matches(page.text, regexp)) ctx.follow(found[1] ?? found[0], { ...options, rule });
      },
      // The first match is an item: its groups by name, or by the names given.
      outputJS: (regexp, ...fields) => {
        const found = page.text.match(regexp instanceof RegExp ? regexp : new RegExp(regexp));
        if (!found) return;
        const named = { ...(found.groups ?? {}) };
        fields.forEach((name, place) => { named[name] = found[place + 1]; });
        ctx.output(Object.keys(named).length ? named : { value: found[1] ?? found[0] });
      },
    };
    const returned = rule(ctx);
    if (Array.isArray(returned)) returned.forEach((item) => ctx.output(item));
    else if (returned && typeof returned === "object") ctx.output(returned);
    return JSON.stringify(given);
  };
})(__select);
