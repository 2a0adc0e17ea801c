/* The page of a router: sliders in, splits by the packed program, links painted by their loads. */
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = id => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const CLASSES = [[0.5, "up to 50 %"], [0.75, "up to 75 %"], [0.9, "up to 90 %"], [1, "up to 100 %"], [Infinity, "overloaded"]];
  const SHOWN = 24;               // sliders made at once: a whole matrix has hundreds
  const HAIR = 1e-9;              // what a link may be above 1 by rounding

  // ---- figures ----------------------------------------------------------------------------------

  const per = value => (100 * value).toFixed(1) + " %";
  /* A utilisation: of counted capacities, where these are not the real ones, and of those. */
  const real = value => data.factor ? per(data.factor * value) : "unknown";
  const used = value => data.counted ? `${per(value)} (${real(value)} of the real capacity)` : per(value);
  const count = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
  const volume = value => count.format(value);
  const short = value => Number(value.toPrecision(7));     // in a field
  const level = value => value > 1 + HAIR ? 4 : CLASSES.findIndex(([top]) => value <= top || top === 1);
  const width = value => 2 + 10 * Math.min(1.2, Math.max(0, value));

  const box = data.set;
  const rows = box.rows && { matrix: cg4ai.array(box.rows), ends: box.ends };

  /* Why demands lie outside the set, in words; empty if they do not. */
  function outside(demands) {
    for (let d = 0; d < demands.length; d++) {
      if (demands[d] > data.demands[d].most) return `${data.demands[d].name} is above ${volume(data.demands[d].most)}, its largest`;
      if (demands[d] < data.demands[d].least) return `${data.demands[d].name} is below ${volume(data.demands[d].least)}, its least`;
    }
    for (let r = 0; rows && r < rows.ends.length; r++) {
      let sum = 0;
      for (let d = 0; d < demands.length; d++) sum += rows.matrix[r * demands.length + d] * demands[d];
      if (sum > rows.ends[r]) return "their sums, such as what a node sends or receives, are above the limits of the set";
    }
    return "";
  }

  /* Demands as far from the middle towards these as limits on sums allow; these, where they do. */
  function within(wanted) {
    const middle = data.demands.map(one => one.usual);
    let share = 1;
    for (let r = 0; rows && r < rows.ends.length; r++) {
      let from = 0, to = 0;
      for (let d = 0; d < wanted.length; d++) {
        from += rows.matrix[r * wanted.length + d] * middle[d];
        to += rows.matrix[r * wanted.length + d] * wanted[d];
      }
      if (to > rows.ends[r]) share = Math.min(share, Math.max(0, (rows.ends[r] - from) / (to - from)) * (1 - HAIR));
    }
    return share === 1 ? wanted : wanted.map((value, d) => middle[d] + share * (value - middle[d]));
  }

  const routers = [];
  for (const given of data.routers) {
    const one = given.as === undefined ? given : { ...data.routers[given.as], ...given };
    routers.push({ ...one, run: null, prices: one.prices ? cg4ai.array(one.prices) : null });
  }

  function loads(router, demands, splits) {
    const result = new Float64Array(data.arcs.length);
    router.paths.forEach((path, p) => {
      const flow = demands[path.demand] * splits[p];
      for (const arc of path.arcs) result[arc] += flow / data.arcs[arc].capacity;
    });
    return result;
  }

  function lower(router, demands) {
    if (!router.prices) return null;
    let best = 0;
    for (let k = 0; k < router.prices.length; k += demands.length) {
      let sum = 0;
      for (let d = 0; d < demands.length; d++) sum += router.prices[k + d] * demands[d];
      best = Math.max(best, sum);
    }
    return best;
  }

  /* All that the page shows for these demands; also what tests read. */
  function answer(demands, which) {
    const router = routers[which];
    if (router.program === undefined) return null;
    router.run = router.run || cg4ai.program(router.program);
    const [splits, theta] = router.run(demands).map(one => Float64Array.from(one));
    const now = loads(router, demands, splits);
    const fixed = router.static ? Math.max(0, ...loads(router, demands, router.static)) : null;
    return {
      splits, theta: theta[0], loads: now, mlu: Math.max(0, ...now), fixed,
      bound: lower(router, demands), outside: outside(demands),
    };
  }

  // ---- state ------------------------------------------------------------------------------------

  let which = 0, chosen = null, limit = SHOWN, found = null;
  const demands = Float64Array.from(data.demands, one => one.usual);
  const order = data.demands.map((_, d) => d).sort((a, b) => data.demands[b].most - data.demands[a].most || a - b);
  const sliders = new Map();

  // ---- map --------------------------------------------------------------------------------------

  const ASIDE = 8;                // of a line from the middle of its link, whose directions are side by side
  const TOUCH = 16;               // pixels of the screen that belong to a direction of a link
  const map = element("map"), arcs = [], names = [];
  map.setAttribute("viewBox", `0 0 ${data.size[0]} ${data.size[1]}`);
  /* Names of nodes are as large as other text, however small the map is, but for very small ones;
     links are as wide for fingers. */
  function fitted() {
    const scale = Math.max(data.size[0] / Math.max(300, map.clientWidth), data.size[1] / Math.max(100, map.clientHeight));
    const size = Math.min(26, Math.max(13, 13 * scale)), wide = Math.max(22, TOUCH * scale);
    map.style.setProperty("--label", `${size}px`);
    data.nodes.forEach((one, i) => label(one, names[i], size));
    // beyond its line, and hardly on the side of the other direction
    arcs.forEach(one => place(one.hit, one.line, Math.max(0, wide / 2 - ASIDE - 3), wide));
  }
  addEventListener("resize", fitted);

  /* On its side of the node; above or below it where that would leave the picture. */
  function label(one, text, size) {
    const put = (x, y, anchor) => Object.entries({ x, y, "text-anchor": anchor }).forEach(([key, value]) => text.setAttribute(key, value));
    put(one.at[0] + one.label[0], one.at[1] + one.label[1], one.label[2]);
    const { x, width } = text.getBBox();
    if (x >= 2 && x + width <= data.size[0] - 2) return;
    const below = one.at[1] + 12 + size <= data.size[1] && one.label[1] >= 0;
    put(Math.min(data.size[0] - 2 - width, Math.max(2, one.at[0] - width / 2)), one.at[1] + (below ? 10 + size : -14), "start");
  }

  function place(line, [x1, y1, x2, y2], aside, wide) {
    const long = Math.hypot(x2 - x1, y2 - y1) || 1, dx = -(y2 - y1) / long * aside, dy = (x2 - x1) / long * aside;
    Object.entries({ x1: x1 + dx, y1: y1 + dy, x2: x2 + dx, y2: y2 + dy, "stroke-width": wide }).forEach(([key, value]) => line.setAttribute(key, value));
  }

  function node(parent, name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  }

  data.unused.forEach(ends => {
    const [[x1, y1], [x2, y2]] = ends.map(one => data.nodes[one].at);
    node(map, "line", { class: "unused", x1, y1, x2, y2 });
  });
  data.arcs.forEach((arc, a) => {
    const [x1, y1] = data.nodes[arc.from].at, [x2, y2] = data.nodes[arc.to].at;
    const long = Math.hypot(x2 - x1, y2 - y1) || 1, ux = (x2 - x1) / long, uy = (y2 - y1) / long;
    const back = Math.min(12, long / 4);    // ending at their nodes
    const line = {
      x1: x1 + ux * back - uy * ASIDE, y1: y1 + uy * back + ux * ASIDE,
      x2: x2 - ux * back - uy * ASIDE, y2: y2 - uy * back + ux * ASIDE,
    };
    const group = node(map, "g", { class: "arc", tabindex: 0, role: "button" });
    const hit = node(group, "line", { class: "hit" });
    node(group, "line", { class: "halo", ...line });
    const shown = node(group, "line", { class: "shown", ...line });
    const tip = node(group, "path", { class: "tip" });
    arcs.push({ group, hit, shown, tip, line: Object.values(line), end: [line.x2, line.y2], way: [ux, uy] });
    const tell = () => { if (chosen === null) aboutArc(a); };
    group.addEventListener("pointerenter", tell);
    group.addEventListener("focus", tell);
    group.addEventListener("pointerleave", rest);
    group.addEventListener("click", () => choose(chosen === a ? null : a));
    group.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(chosen === a ? null : a); }
      if (event.key === "Escape") choose(null);
    });
  });
  data.nodes.forEach(one => {
    const circle = node(map, "circle", one.unused ? { r: 4, class: "unused" } : { r: 7 });
    circle.setAttribute("cx", one.at[0]);
    circle.setAttribute("cy", one.at[1]);
    if (one.unused) node(circle, "title", {}).textContent = `${one.name}: on no path`;
    const text = node(map, "text", {});
    text.textContent = one.unused ? "" : one.name;
    names.push(text);
  });

  function choose(a) {
    chosen = a;
    arcs.forEach((one, i) => one.group.classList.toggle("chosen", i === a));
    rest();
  }

  /* What is told while nothing is pointed at. */
  function rest() {
    if (chosen === null) usual(); else aboutArc(chosen);
  }

  const name = arc => `${data.nodes[data.arcs[arc].from].name}\u2192${data.nodes[data.arcs[arc].to].name}`;

  function told(title, lines) {
    const head = document.createElement("strong"), list = document.createElement("ul");
    head.textContent = title;
    for (const line of lines) list.append(Object.assign(document.createElement("li"), { textContent: line }));
    element("told").replaceChildren(head, list);
  }

  function usual() {
    dim(null);
    told("Point at a link or a demand, or tap it.", ["Sliders set demands; the router splits each of them over its paths, at once, in this page."]);
  }

  /* Only these arcs stand out; all if null. */
  function dim(kept) {
    arcs.forEach((one, a) => one.group.classList.toggle("dimmed", kept !== null && !kept.has(a)));
  }

  function aboutArc(a) {
    const router = routers[which], lines = [];
    dim(null);
    if (found) {
      const users = router.paths.map((path, p) => ({ path, p, flow: demands[path.demand] * found.splits[p] }))
        .filter(one => one.path.arcs.includes(a) && found.splits[one.p] > 0.0005 && one.flow > 0).sort((x, y) => y.flow - x.flow);
      for (const one of users.slice(0, 6)) {
        lines.push(`${volume(one.flow)} of ${data.demands[one.path.demand].name}: ${per(found.splits[one.p])} of it goes via ${one.path.nodes.map(n => data.nodes[n].name).join("\u2192")}`);
      }
      if (users.length > 6) lines.push(`and ${users.length - 6} more`);
      if (!users.length) lines.push("carries nothing now");
    }
    const now = found ? `, ${per(found.loads[a])} of ` : ", capacity ", whole = data.arcs[a].capacity;
    if (data.factor && data.counted) lines.unshift(`its real capacity is ${volume(whole / data.factor)}${found ? `, of which ${real(found.loads[a])} are used` : ""}`);
    told(`${name(a)}${now}${volume(whole)}${data.counted ? `, its ${data.counted}` : ""}`, lines);
  }

  function aboutDemand(d) {
    const title = `${data.demands[d].name}: ${volume(demands[d])}`;
    if (!found) {
      dim(null);
      told(title, ["no router for this failure, so no splits"]);
      return;
    }
    const own = routers[which].paths.map((path, p) => ({ path, p })).filter(one => one.path.demand === d);
    dim(new Set(own.flatMap(one => found.splits[one.p] > 0.0005 ? one.path.arcs : [])));
    told(title, own.map(one => `${per(found.splits[one.p])} via ${one.path.nodes.map(n => data.nodes[n].name).join("\u2192")}`));
  }

  // ---- demands ----------------------------------------------------------------------------------

  function slider(d) {
    const demand = data.demands[d], item = document.createElement("li"), line = document.createElement("div");
    const label = Object.assign(document.createElement("label"), { textContent: demand.name, htmlFor: `range-${d}` });
    const typed = Object.assign(document.createElement("input"), { type: "number", step: "any", min: 0 });
    typed.setAttribute("aria-label", `${demand.name}, volume`);
    const range = Object.assign(document.createElement("input"), { type: "range", id: `range-${d}`, min: 0, max: demand.most, step: demand.most / 1000 });
    const shares = document.createElement("div");
    shares.className = "shares";
    shares.setAttribute("aria-hidden", "true");
    line.className = "name";
    line.append(label, typed);
    item.append(line, range, shares);
    range.addEventListener("input", () => { demands[d] = range.value >= demand.most ? demand.most : Number(range.value); update(); aboutDemand(d); });
    typed.addEventListener("change", () => {
      const value = Number(typed.value);
      if (typed.value !== "" && Number.isFinite(value) && value >= 0) demands[d] = value;
      else typed.value = short(demands[d]);
      update();
    });
    item.addEventListener("pointerenter", () => aboutDemand(d));
    item.addEventListener("focusin", () => aboutDemand(d));
    item.addEventListener("pointerleave", rest);
    return { item, range, typed, shares };
  }

  function listed() {
    const wanted = element("search").value.trim().toLowerCase();
    const fitting = order.filter(d => data.demands[d].name.toLowerCase().includes(wanted));
    const now = fitting.slice(0, limit);
    for (const d of now) if (!sliders.has(d)) sliders.set(d, slider(d));
    element("demands").replaceChildren(...now.map(d => sliders.get(d).item));
    element("count").textContent = `${now.length} of ${data.demands.length} shown, the largest first`;
    element("more").hidden = fitting.length <= limit;
    paintDemands();
  }

  function paintDemands() {
    const router = routers[which];
    for (const { item } of sliders.values()) item.dataset.live = "";
    for (const [d, one] of sliders) {
      if (!one.item.isConnected) continue;
      one.range.value = demands[d];
      if (document.activeElement !== one.typed) one.typed.value = short(demands[d]);
      one.range.setAttribute("aria-valuetext", volume(demands[d]));
      const own = found ? router.paths.map((path, p) => path.demand === d ? found.splits[p] : -1).filter(share => share >= 0) : [];
      while (one.shares.children.length > own.length) one.shares.lastChild.remove();
      while (one.shares.children.length < own.length) one.shares.append(document.createElement("i"));
      own.forEach((share, i) => { one.shares.children[i].style.width = `${100 * share}%`; });
    }
  }

  // ---- links ------------------------------------------------------------------------------------

  const table = data.arcs.map((arc, a) => {
    const row = document.createElement("tr"), cells = Array.from({ length: 4 }, () => document.createElement("td"));
    const bar = document.createElement("span"), inner = document.createElement("i"), now = document.createElement("span");
    cells[0].textContent = name(a);
    cells[1].className = cells[2].className = "number";
    bar.className = "bar";
    now.className = "now";
    bar.setAttribute("aria-hidden", "true");
    bar.append(inner);
    cells[1].append(bar, now);
    row.append(...cells);
    row.addEventListener("pointerenter", () => { if (chosen === null) aboutArc(a); });
    row.addEventListener("click", event => {
      if (event.target.closest("button")) return;
      choose(chosen === a ? null : a);
      map.scrollIntoView({ block: "nearest" });
    });
    return { row, inner, now, worst: cells[2], last: cells[3] };
  });

  function worstCases() {
    const worst = routers[which].worst;
    const vectors = worst && cg4ai.array(worst.vectors);
    table.forEach((one, a) => {
      one.last.replaceChildren();
      one.worst.textContent = worst ? used(worst.loads[a]) : "\u2013";
      if (!worst) return;
      const button = Object.assign(document.createElement("button"), { type: "button", textContent: "show" });
      button.setAttribute("aria-label", `set the worst demands found for ${name(a)}`);
      button.addEventListener("click", () => {
        demands.set(vectors.subarray(a * demands.length, (a + 1) * demands.length));
        choose(a);
        update();
        map.scrollIntoView({ block: "nearest" });
      });
      one.last.append(button);
    });
    const sorted = data.arcs.map((_, a) => a).sort((a, b) => worst ? worst.loads[b] - worst.loads[a] : a - b);
    document.querySelector("#links tbody").replaceChildren(...sorted.map(a => table[a].row));
  }

  // ---- painting ---------------------------------------------------------------------------------

  function paintMap() {
    const failed = new Set(routers[which].failed || []);
    arcs.forEach((one, a) => {
      const value = found ? found.loads[a] : 0, colour = `var(--u${level(value)})`, wide = failed.has(a) ? 2 : width(value);
      one.group.classList.toggle("failed", failed.has(a));
      one.shown.style.stroke = failed.has(a) ? "" : colour;
      one.shown.style.strokeWidth = wide;
      one.shown.style.strokeDasharray = value > 1 + HAIR ? "14 5" : "";
      const [x, y] = one.end, [ux, uy] = one.way, size = failed.has(a) ? 0 : wide / 2 + 5;
      one.tip.setAttribute("d", `M${x + ux * size} ${y + uy * size}L${x - uy * size} ${y + ux * size}L${x + uy * size} ${y - ux * size}Z`);
      one.tip.style.fill = colour;
      one.group.setAttribute("aria-label", `${name(a)}, ${failed.has(a) ? "failed" : found ? `${used(value)} used` : "no router"}`);
      const cell = table[a];
      cell.row.classList.toggle("over", value > 1 + HAIR);
      cell.now.textContent = failed.has(a) ? "failed" : found ? used(value) : "\u2013";
      cell.inner.style.width = `${Math.min(100, 100 * value)}%`;
      cell.inner.style.background = colour;
    });
  }

  function promise() {
    const router = routers[which];
    if (!found) return [["bad", router.words]];
    if (found.outside) return [["warn", `Outside the set of demands: ${found.outside}. Nothing is guaranteed here.`]];
    const lines = [[router.tone, router.words]];
    if (router.shielded && found.theta > 0) lines.push(["", `At these demands the shield acts: it moves the splits ${per(found.theta)} of the way to those that fit.`]);
    else if (router.shielded) lines.push(["", "At these demands the shield does nothing: the network's own splits fit."]);
    if (router.ratio) lines.push(["", `Proven: never more than ${router.ratio.toFixed(4)} times the optimum in the set.`]);
    return lines;
  }

  const BRIEF = { good: "no overload in the set: guaranteed", warn: "not proven", bad: "capacities are not kept" };

  /* What the panel of figures says, in a few words for where it has left the screen. */
  function further() {
    if (!found) return [];
    const tone = found.outside ? "warn" : routers[which].tone;
    const bound = found.bound === null ? "" : `; optimum at least ${used(found.bound)}`;
    const scaled = data.counted ? `, of ${data.counted}` : "";
    const words = found.outside ? "outside the set: nothing is guaranteed" : BRIEF[tone] + scaled;
    return [`${bound}; `, Object.assign(document.createElement("span"), { className: tone, textContent: words })];
  }

  function paintFigures() {
    const bound = element("bound"), fixed = element("static");
    element("mlu").textContent = found ? used(found.mlu) : "\u2013";
    element("mlu").classList.toggle("over", Boolean(found) && found.mlu > 1 + HAIR);
    element("fullest").textContent = found && found.mlu > 0 ? name(found.loads.indexOf(found.mlu)) : "none";
    element("brief").textContent = found ? `${used(found.mlu)} on the fullest link, ${element("fullest").textContent}` : "no router for this failure";
    element("brief").classList.toggle("over", Boolean(found) && found.mlu > 1 + HAIR);
    element("further").replaceChildren(...further());
    bound.textContent = found && found.bound !== null ? used(found.bound) : "unknown";
    element("gap").textContent = found && found.bound > 0 ? `so at most ${per(Math.max(0, found.mlu / found.bound - 1))} above it` : "";
    fixed.textContent = found && found.fixed !== null ? used(found.fixed) : "\u2013";
    element("staticgap").textContent = found && found.fixed > 0 && found.mlu > 0 ? `${(found.fixed / found.mlu).toFixed(2)} times the router's` : "";
    element("promise").replaceChildren(...promise().map(([tone, text]) =>
      Object.assign(document.createElement("span"), { className: tone, textContent: `${text} ` })));
  }

  function update() {
    found = answer(demands, which);
    paintMap();
    paintFigures();
    paintDemands();
    if (chosen !== null) aboutArc(chosen);
  }

  // ---- controls ---------------------------------------------------------------------------------

  const SETS = {
    least: one => one.least, usual: one => one.usual, most: one => one.most,
    random: one => one.least + Math.random() * (one.most - one.least),
  };
  document.querySelectorAll("[data-all]").forEach(button => button.addEventListener("click", () => {
    demands.set(within(data.demands.map(SETS[button.dataset.all])));
    choose(null);
    update();
  }));
  element("search").addEventListener("input", () => { limit = SHOWN; listed(); });
  element("more").addEventListener("click", () => { limit += 4 * SHOWN; listed(); });
  if (routers.length > 1) {
    element("failurebox").hidden = false;
    routers.forEach((one, i) => element("failure").append(Object.assign(document.createElement("option"), { value: i, textContent: one.label })));
    element("failure").addEventListener("change", event => { which = Number(event.target.value); choose(null); worstCases(); update(); });
  }

  function inLegend(text) {
    const item = document.createElement("span"), sample = document.createElementNS(SVG, "svg");
    sample.setAttribute("viewBox", "0 0 40 16");
    const line = node(sample, "line", { x1: 0, y1: 8, x2: 40, y2: 8 });
    item.append(sample, text);
    element("legend").append(item);
    return line;
  }

  /* Why "largest" leaves sliders before their ends, where it does. */
  function sums() {
    const most = data.demands.map(SETS.most), shares = within(most).map((value, d) => most[d] > 0 ? Math.round(100 * value / most[d]) : 100);
    const least = Math.min(...shares), greatest = Math.max(...shares);
    if (least === 100) return;
    element("sums").hidden = false;
    element("sums").textContent = "The set limits sums of demands, too: \u201clargest\u201d goes as far as all can grow together, to "
      + `${least === greatest ? least : `${least} to ${greatest}`} % of each one's own largest.`;
  }

  element("title").textContent = data.title;
  element("about").textContent = data.about;
  element("foot").textContent = data.foot;
  CLASSES.forEach(([top, text], i) => {
    const line = inLegend(text);
    line.style.stroke = `var(--u${i})`;
    line.style.strokeWidth = width(top === Infinity ? 1.1 : top - 0.1);
    if (top === Infinity) line.style.strokeDasharray = "10 5";     // ends with a whole dash
  });
  if (data.counted) element("legend").append(Object.assign(document.createElement("span"), { textContent: `of ${data.counted}` }));
  if (routers.some(one => one.failed)) Object.assign(inLegend("failed").style, { stroke: "var(--quiet)", strokeWidth: 2, strokeDasharray: "3 9" });
  fitted();
  sums();
  usual();
  worstCases();
  update();
  listed();
  globalThis.explorer = {
    answer,
    set: (vector, failure = 0) => { demands.set(vector); which = failure; update(); return found; },
    demands: () => Array.from(demands),
    found: () => found,
  };
})();
