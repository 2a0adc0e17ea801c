/* Stored later matrices on an axis of time: lines of MLU, a slider, and a button that plays them. */
"use strict";
globalThis.cg4ai = globalThis.cg4ai || {};
(function () {
  const SVG = "http://www.w3.org/2000/svg";
  const HEIGHT = 104, LEFT = 46, RIGHT = 8, TOP = 8, BOTTOM = 22;
  const PAUSE = 250;              // milliseconds of one matrix

  /* In `box`: `lines` are [name, values, class] with the one on top last, `times` their names;
     `outside` says which lie outside the set, `tell(i)` shows matrix i, `per` writes a value. */
  cg4ai.timeline = function (box, { times, lines, outside, about, tell, per }) {
    const make = (name, given = {}) => Object.assign(document.createElement(name), given);
    const chart = document.createElementNS(SVG, "svg"), legend = make("p", { className: "lines" });
    const slider = make("input", { type: "range", min: 0, max: times.length - 1, step: 1, value: 0, id: "time" });
    const play = make("button", { type: "button", textContent: "play", id: "play" });
    const now = make("span", { className: "now", id: "moment" }), row = make("div", { className: "play" });
    let at = null, timer = null;
    chart.setAttribute("role", "img");
    chart.setAttribute("aria-label", `MLU over time of ${lines.map(([name]) => name).join(", ")}`);
    slider.setAttribute("aria-label", "matrix");
    row.append(play, slider, now);
    const shown = lines.map(([name, , kind]) => {
      const item = make("span"), sample = document.createElementNS(SVG, "svg");
      sample.setAttribute("viewBox", "0 0 30 10");
      put(sample, "line", { x1: 0, y1: 5, x2: 30, y2: 5, class: kind });
      const text = make("span", { textContent: name });
      item.append(sample, text);
      legend.append(item);
      return text;
    });
    if (outside.some(one => one)) legend.append(make("span", { textContent: "| outside the set" }));
    const head = make("p", { className: "quiet" });
    head.append(make("strong", { textContent: "Measured traffic. " }), about);
    box.append(head, chart, legend, row);

    const most = Math.max(1e-12, ...lines.flatMap(([, values]) => Array.from(values)));
    function put(parent, name, attributes) {
      const made = document.createElementNS(SVG, name);
      for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
      parent.append(made);
      return made;
    }

    const room = () => Math.max(50, (chart.clientWidth || 600) - LEFT - RIGHT);
    const across = i => LEFT + room() * (times.length > 1 ? i / (times.length - 1) : 0.5);
    const up = value => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / most;

    function draw() {
      chart.setAttribute("viewBox", `0 0 ${room() + LEFT + RIGHT} ${HEIGHT}`);
      chart.replaceChildren();
      for (const value of [0, most / 2, most]) {
        put(chart, "line", { class: "grid", x1: LEFT, x2: LEFT + room(), y1: up(value), y2: up(value) });
        put(chart, "text", { x: LEFT - 6, y: up(value) + 4, "text-anchor": "end" }).textContent = `${(100 * value).toFixed(most < 0.1 ? 1 : 0)} %`;
      }
      lines.forEach(([, values, kind]) => put(chart, "polyline", {
        class: kind, points: Array.from(values, (value, i) => `${across(i).toFixed(1)},${up(value).toFixed(1)}`).join(" "),
      }));
      outside.forEach((one, i) => {
        if (one) put(chart, "line", { class: "outside", x1: across(i), x2: across(i), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 6 });
      });
      put(chart, "text", { x: LEFT, y: HEIGHT - 3 }).textContent = times[0];
      put(chart, "text", { x: LEFT + room(), y: HEIGHT - 3, "text-anchor": "end" }).textContent = times[times.length - 1];
      cursor();
    }

    function cursor() {
      chart.querySelectorAll(".cursor").forEach(one => one.remove());
      if (at !== null) put(chart, "line", { class: "cursor", x1: across(at), x2: across(at), y1: TOP, y2: HEIGHT - BOTTOM });
      now.textContent = at === null ? "" : times[at] + (outside[at] ? " (outside the set)" : "");
      shown.forEach((text, k) => { text.textContent = lines[k][0] + (at === null ? "" : ` ${per(lines[k][1][at])}`); });
    }

    function go(i) {
      at = i;
      slider.value = i;
      slider.setAttribute("aria-valuetext", times[i]);
      tell(i);
      cursor();
    }

    function stop() {
      clearInterval(timer);
      timer = null;
      play.textContent = "play";
    }

    play.addEventListener("click", () => {
      if (timer !== null) { stop(); return; }
      play.textContent = "pause";
      const next = () => {
        if (at === times.length - 1 && timer !== null) { stop(); return; }
        go(at === null || at === times.length - 1 ? 0 : at + 1);
      };
      next();
      timer = setInterval(next, PAUSE);
    });
    slider.addEventListener("input", () => { stop(); go(Number(slider.value)); });
    chart.addEventListener("click", event => {
      const share = (event.clientX - chart.getBoundingClientRect().left - LEFT) / room();
      stop();
      go(Math.max(0, Math.min(times.length - 1, Math.round(share * (times.length - 1)))));
    });
    addEventListener("resize", draw);
    draw();
    // demands that a reader sets are of no time
    return { leave: () => { stop(); if (at !== null) { at = null; cursor(); } }, go, at: () => at };
  };
})();
