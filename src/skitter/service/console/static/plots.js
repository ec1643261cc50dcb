// Line and bar charts as inline SVG. Colors come from the style sheet.

import { h, number, rate } from "./dom.js";

const WIDTH = 480;
const HEIGHT = 120;
const SECONDS = 300;

// series: {name, points: [[seconds, value]]}; the newest value of each stands beside its name.
export function lineChart(title, series, format = rate) {
  const now = Math.max(...series.flatMap((one) => one.points.map(([at]) => at)), 0);
  const shown = series.map((one) => ({ ...one, points: one.points.filter(([at]) => at >= now - SECONDS) }));
  const values = shown.flatMap((one) => one.points.map(([, value]) => value));
  const top = niceTop(Math.max(...values, 0));
  const start = Math.min(now - 30, ...shown.flatMap((one) => one.points.map(([at]) => at)));
  const x = (at) => (WIDTH * (at - start)) / Math.max(now - start, 1);
  const y = (value) => HEIGHT - (HEIGHT - 4) * (value / top);
  const grid = [0, 0.5, 1].map((part) => h("line", { class: "grid", x1: 0, x2: WIDTH, y1: y(part * top), y2: y(part * top) }));
  const lines = shown.map((one, index) => {
    const line = one.points.map(([at, value], place) => `${place ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    const area = index === 0 && line
      ? h("path", { class: "area c0", d: `${line}L${x(one.points.at(-1)[0]).toFixed(1)} ${HEIGHT}L${x(one.points[0][0]).toFixed(1)} ${HEIGHT}Z` })
      : null;
    return [area, h("path", { class: `line c${index % 6}`, d: line || "M0 0" })];
  });
  const newest = (one) => (one.points.length ? format(one.points.at(-1)[1]) : "–");
  const latest = shown.map((one) => `${one.name} ${newest(one)}`).join(", ");
  return h("figure", { class: "plot" },
    h("figcaption", null, h("span", { class: "title" }, title),
      h("span", { class: "legend" }, shown.map((one, index) =>
        h("span", { class: `key c${index % 6}` }, h("span", { class: "name" }, one.name), h("b", null, newest(one)))))),
    h("div", { class: "canvas" },
      h("span", { class: "top", "aria-hidden": "true" }, format(top)),
      h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${title}: ${latest}` }, grid, lines)),
    h("div", { class: "axis", "aria-hidden": "true" }, h("span", null, `${Math.round(now - start)} s ago`), h("span", null, "now")));
}

function niceTop(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].find((step) => step * power >= value) * power;
}

// values: [[name, value]]
export function barChart(title, values, empty) {
  const top = Math.max(...values.map(([, value]) => value), 1);
  const total = values.reduce((sum, [, value]) => sum + value, 0);
  return h("figure", { class: "bars" },
    h("figcaption", null, h("span", { class: "title" }, title)),
    values.length
      ? h("dl", { tabindex: "0", "aria-label": title }, values.map(([name, value]) => h("div", { class: "bar" },
          h("dt", null, h("bdi", null, name)),
          h("dd", null,
            h("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
              h("rect", { class: "back", width: 100, height: 10 }), h("rect", { width: Math.max(0.5, (100 * value) / top), height: 10 })),
            h("span", { class: "n", title: `${rate((100 * value) / total)} %` }, number(value))))))
      : h("p", { class: "empty" }, empty));
}

// Differences per second between points, over a few seconds, so that single steps do not flicker.
export function rates(points, name, span = 3) {
  const found = [];
  for (let index = 1; index < points.length; index += 1) {
    let from = index - 1;
    while (from > 0 && points[index].at - points[from].at < span) from -= 1;
    const seconds = points[index].at - points[from].at;
    const value = (one) => (typeof name === "function" ? name(one) : one[name]);
    if (seconds > 0) found.push([points[index].at, Math.max(0, (value(points[index]) - value(points[from])) / seconds)]);
  }
  return found;
}

export const levels = (points, name) => points.map((point) => [point.at, point[name]]);
