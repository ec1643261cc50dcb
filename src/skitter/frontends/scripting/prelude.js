// The `ctx` object of a rule: the page, and methods that return items and requests.
"use strict";
var __run = (function (select, log) {
  delete globalThis.__select;
  delete globalThis.__log;
  function selected(kind, query) {
    const result = JSON.parse(select(kind, String(query)));
    if (result.error) throw new Error(result.error);
    return result.found;
  }
  // The groups of every match, or all of it without groups.
  function* matches(text, regexp) {
    const source = regexp instanceof RegExp ? regexp.source : String(regexp);
    const flags = regexp instanceof RegExp ? regexp.flags.replace("g", "") : "";
    for (const found of text.matchAll(new RegExp(source, flags + "g"))) yield [...found];
  }
  const shown = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));
  const written = (level) => (...values) => { log(level, values.map(shown).join(" ")); };
  globalThis.console = {
    debug: written("debug"), log: written("info"), info: written("info"), warn: written("warning"), error: written("error"),
  };
  // A regular expression of Go in JavaScript. What would have another meaning there is an error.
  function ofGo(text) {
    let flags = "";
    const source = String(text)
      .replace(/^\(\?([ims]+)\)/, (_, found) => { flags = found; return ""; })
      .replace(/\\([\s\S])|\(\?P</g, (found, escaped) => {
        if (escaped === undefined) return "(?<";
        if (escaped === "A" || escaped === "z") return escaped === "A" ? "(?<![\\s\\S])" : "(?![\\s\\S])";
        if ("pPQEC".includes(escaped)) throw new SyntaxError(`\\${escaped} is not supported in a regular expression`);
        return found;
      });
    if (/\[\[:|\(\?[a-zA-Z-]+[):]/.test(source)) throw new SyntaxError(`unsupported syntax in the regular expression ${text}`);
    return new RegExp(source, flags);
  }
  // The names that rules of Zheng's crawler use.
  function addNamesOfZheng(ctx, page, rules, results) {
    const result = (requests, items) => {
      const made = { Requesrts: requests, Items: items }; // the spelling of the original
      results.add(made);
      return made;
    };
    const carried = { ...ctx.data };
    const kept = () => (Object.keys(carried).length ? { data: carried } : {});
    globalThis.AddJsReq = (wanted) => {
      const requests = Array.isArray(wanted) ? wanted : [wanted];
      for (const { URL, RuleName, Method, Priority } of requests) {
        if (typeof URL !== "string") throw new TypeError("AddJsReq: a request has no URL");
        ctx.follow(URL, {
          ...kept(), method: Method || "GET", priority: Math.trunc(Priority ?? 0), ...(RuleName ? { rule: RuleName } : {}),
        });
      }
      results.add(requests);
      return requests;
    };
    let bytes;
    Object.defineProperty(ctx, "Body", {
      get() {
        if (!bytes) {
          bytes = Uint8Array.from(unescape(encodeURIComponent(page.text)), (one) => one.charCodeAt(0));
          bytes.toString = () => page.text;
        }
        return bytes;
      },
    });
    ctx.Req = {
      URL: page.url,
      Method: page.method ?? "GET",
      Depth: ctx.depth ?? 0,
      Priority: page.priority ?? 0,
      RuleName: ctx.rule,
      Task: { Name: page.task ?? "" },
      TmpData: { Get: (name) => carried[name] ?? null, Set: (name, value) => { carried[name] = value; } },
    };
    ctx.GetRule = (name) => (rules.includes(name) ? { ItemFields: [] } : null);
    ctx.Output = (data) => {
      const { Name } = ctx.Req.Task;
      const item = { task: Name, rule: ctx.rule, url: page.url, time: new Date().toISOString(), ...data };
      ctx.output(item);
      results.add(item);
      return item;
    };
    ctx.ParseJSReg = (rule, regexp) => {
      const requests = [...matches(page.text, ofGo(regexp))].map((found) => {
        if (found.length < 2) throw new TypeError("ParseJSReg: the regular expression has no group");
        ctx.follow(found[1], { ...kept(), rule });
        return { URL: found[1], Method: "GET", RuleName: rule };
      });
      return result(requests, []);
    };
    // An item with the URL of the page, if the expression matches.
    ctx.OutputJS = (regexp) => {
      const items = ofGo(regexp).test(page.text) ? [page.url] : [];
      items.forEach((url) => ctx.output({ url }));
      return result([], items);
    };
  }
  return function (rule, names, values) {
    const given = { items: [], requests: [] };
    const results = new Set(); // what functions returned, so that a script may return it as well
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
    addNamesOfZheng(ctx, page, page.rules ?? [], results);
    const returned = rule(ctx);
    if (results.has(returned)) return JSON.stringify(given);
    if (Array.isArray(returned)) returned.forEach((item) => ctx.output(item));
    else if (returned && typeof returned === "object") ctx.output(returned);
    return JSON.stringify(given);
  };
})(__select, __log);
