/* The page of a router: sliders in, splits by the packed program, links painted by their loads. */
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = id => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const CLASSES = [[0.1, "up to 10 %"], [0.25, "25 %"], [0.5, "50 %"], [0.75, "75 %"], [0.9, "90 %"], [1, "100 %"], [Infinity, "overloaded"]];
  const SHOWN = 24;               // sliders made at once: a whole matrix has hundreds
  const COLOURS = 4;              // of paths in bars
  const HAIR = 1e-9;              // what a link may be above 1 by rounding

  // ---- figures ----------------------------------------------------------------------------------

  const per = value => (100 * value).toFixed(1) + " %";
  /* A utilisation: of counted capacities, where these are not the real ones, and of those. */
  const real = value => data.factor ? per(data.factor * value) : "unknown";
  const used = value => data.counted ? `${per(value)} (${real(value)} of the real capacity)` : per(value);
  const count = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
  const volume = value => count.format(value);
  const short = value => Number(value.toPrecision(7));     // in a field
  const level = value => value > 1 + HAIR ? CLASSES.length - 1 : CLASSES.findIndex(([top]) => value <= top || top === 1);
  const FINE = Math.max(0.5, Math.min(1, Math.sqrt(40 / data.nodes.length)));   // thinner where nodes are many
  const width = value => FINE * (2 + 10 * Math.min(1.2, Math.max(0, value)));

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

  const ASIDE = 8 * FINE;         // of a line from the middle of its link, whose directions are side by side
  const TOUCH = 16;               // pixels of the screen that belong to a direction of a link
  const RADIUS = 7 * FINE, BACK = 12 * FINE;
  const LEAST_SHOWN = 0.005;      // a utilisation that is written as 0 % says nothing
  const PLACES = [0.5, 0.35, 0.65];   // along a link, where its utilisation may stand
  const SIDES = [[14, 6, "start"], [-14, 6, "end"], [0, 26, "middle"], [0, -14, "middle"], [11, 21, "start"], [-11, 21, "end"], [11, -10, "start"], [-11, -10, "end"]];
  const map = element("map"), arcs = [], names = [], circles = [];
  map.setAttribute("viewBox", `0 0 ${data.size[0]} ${data.size[1]}`);

  // the nodes that send and receive most are named first
  const rank = data.nodes.map(() => 0);
  data.demands.forEach(one => { for (const end of one.ends || []) rank[end] += one.most; });
  data.arcs.forEach(arc => { rank[arc.from] += 1e-9 * arc.capacity; });
  const byRank = data.nodes.map((_, n) => n).filter(n => !data.nodes[n].unused).sort((a, b) => rank[b] - rank[a] || a - b);

  let letters = null;             // width of each name at size 1
  let size = 13, taken = [];      // of names; boxes of nodes and of the names that are written
  let hairline = 1;               // the thinnest line that a screen shows well

  /* Names and figures are as large as other text, however small the map is, and what finds no room
     is left out until it is pointed at; links are as wide as fingers. */
  function fitted() {
    const scale = Math.max(data.size[0] / Math.max(300, map.clientWidth), data.size[1] / Math.max(100, map.clientHeight));
    const wide = Math.max(22, TOUCH * scale);
    hairline = 1.1 * scale;
    size = Math.max(13, Math.min(13, 11 + 2 / scale) * scale);
    map.style.setProperty("--label", `${size}px`);
    letters = letters || names.map(text => text.getComputedTextLength() / size || 0.6 * text.textContent.length);
    nameNodes();
    // beyond its line, and hardly on the side of the other direction
    arcs.forEach(one => {
      place(one.hit, one.line, Math.max(0, wide / 2 - ASIDE - 3), wide);
      one.spots = spotsOf(one, 4);
    });
  }
  addEventListener("resize", () => { fitted(); paintMap(); });

  function nameNodes() {
    const circlesTaken = data.nodes.map(one => [one.at[0] - RADIUS, one.at[1] - RADIUS, 2 * RADIUS, 2 * RADIUS]);
    const spots = byRank.map(n => {
      const all = spotsOfName(data.nodes[n], letters[n] * size), clear = all.filter(spot => nearest(spot.box, n));
      return { clear, usual: all[0] };
    });
    taken = circlesTaken;
    const chosen = cg4ai.placeLabels(spots.map(one => one.clear.map(spot => spot.box)), taken);
    byRank.forEach((n, i) => {
      const { x, y } = chosen[i] >= 0 ? spots[i].clear[chosen[i]] : spots[i].usual;
      names[n].setAttribute("x", x);
      names[n].setAttribute("y", y);
      names[n].classList.toggle("crowded", chosen[i] < 0);
    });
  }

  /* Whether a box is nearer to its own node than to any other, whose name it would seem to be. */
  function nearest([left, top, width, height], own) {
    const far = ({ at }) => Math.hypot(Math.max(left - at[0], 0, at[0] - left - width), Math.max(top - at[1], 0, at[1] - top - height));
    const mine = far(data.nodes[own]);
    return data.nodes.every((one, n) => n === own || one.unused || far(one) > mine);
  }

  /* Beside a node, on the side that is furthest from its links first; all within the picture. */
  function spotsOfName(one, width) {
    return [one.label, ...SIDES].map(([dx, dy, anchor]) => {
      const down = dy > 20 ? dy - 13 + 0.75 * size : dy > 0 && dy < 10 ? 0.35 * size : dy;
      const left = one.at[0] + FINE * dx - (anchor === "end" ? width : anchor === "middle" ? width / 2 : 0);
      const x = Math.min(data.size[0] - 2 - width, Math.max(2, left));
      const y = Math.min(data.size[1] - 4, Math.max(size, one.at[1] + FINE * down));
      return { x, y, box: [x, y - 0.85 * size, width, 1.1 * size] };
    });
  }

  /* Boxes beside a link for so many letters, on its own side, that no other link runs through. */
  function spotsOf(one, count) {
    const high = 0.85 * size, wide = 0.6 * high * count, [x1, y1, x2, y2] = one.line, [ux, uy] = one.way;
    if (Math.hypot(x2 - x1, y2 - y1) < 0.8 * Math.max(Math.abs(ux) * wide, Math.abs(uy) * high)) return [];
    const off = 7 * FINE + Math.abs(uy) * wide / 2 + Math.abs(ux) * high / 2;
    return PLACES.map(share => {
      const x = x1 + share * (x2 - x1) - uy * off, y = y1 + share * (y2 - y1) + ux * off;
      return [x - wide / 2, y - high / 2, wide, high];
    }).filter(box => box[0] > 0 && box[1] > 0 && box[0] + wide < data.size[0] && box[1] + high < data.size[1]
      && !arcs.some(other => other !== one && cg4ai.crosses(other.line, box)));
  }

  /* Utilisations beside their links, the fullest first, as far as there is room. */
  function paintFigureTexts() {
    if (letters === null) return;
    const values = arcs.map((_, a) => found ? found.loads[a] : 0);
    const sorted = arcs.map((_, a) => a).sort((a, b) => values[b] - values[a]);
    const chosen = cg4ai.placeLabels(sorted.map(a => values[a] >= LEAST_SHOWN ? arcs[a].spots : []), taken.slice());
    sorted.forEach((a, i) => {
      const one = arcs[a], [x1, y1, x2, y2] = one.line, high = 0.85 * size;
      const [left, top, wide, tall] = chosen[i] >= 0 ? one.spots[chosen[i]] : [(x1 + x2) / 2 - one.way[1] * 14 - 1.2 * high, (y1 + y2) / 2 + one.way[0] * 14 - high / 2, 2.4 * high, high];
      one.figure.setAttribute("x", left + wide / 2);
      one.figure.setAttribute("y", top + 0.84 * tall);
      one.figure.textContent = found ? `${Math.round(100 * values[a])} %` : "";
      one.figure.classList.toggle("crowded", chosen[i] < 0);
    });
  }

  /* What is pointed at is named, whether or not there is room. */
  function point(nodes, a = null) {
    names.forEach((text, n) => text.classList.toggle("pointed", nodes.includes(n)));
    arcs.forEach((one, i) => one.figure.classList.toggle("pointed", i === a));
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

  const [lines, dots, texts] = ["lines", "dots", "texts"].map(kind => node(map, "g", { class: kind }));
  data.unused.forEach(ends => {
    const [[x1, y1], [x2, y2]] = ends.map(one => data.nodes[one].at);
    node(lines, "line", { class: "unused", x1, y1, x2, y2 });
  });
  data.arcs.forEach((arc, a) => {
    const [x1, y1] = data.nodes[arc.from].at, [x2, y2] = data.nodes[arc.to].at;
    const long = Math.hypot(x2 - x1, y2 - y1) || 1, ux = (x2 - x1) / long, uy = (y2 - y1) / long;
    const back = Math.min(BACK, long / 4);    // ending at their nodes
    const line = {
      x1: x1 + ux * back - uy * ASIDE, y1: y1 + uy * back + ux * ASIDE,
      x2: x2 - ux * back - uy * ASIDE, y2: y2 - uy * back + ux * ASIDE,
    };
    const group = node(lines, "g", { class: "arc", tabindex: 0, role: "button" });
    const hit = node(group, "line", { class: "hit" });
    node(group, "line", { class: "halo", ...line });
    const shown = node(group, "line", { class: "shown", ...line });
    const tip = node(group, "path", { class: "tip" });
    const figure = node(texts, "text", { class: "figure crowded", "text-anchor": "middle" });
    arcs.push({ group, hit, shown, tip, figure, spots: [], line: Object.values(line), end: [line.x2, line.y2], way: [ux, uy] });
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
  data.nodes.forEach((one, n) => {
    const circle = node(dots, "circle", { class: one.unused ? "unused" : "", r: (one.unused ? 4 : 7) * FINE, cx: one.at[0], cy: one.at[1] });
    if (one.unused) node(circle, "title", {}).textContent = `${one.name}: on no path`;
    const text = node(texts, "text", { class: one.unused ? "name crowded" : "name" });
    text.textContent = one.name;
    names.push(text);
    circles.push(circle);
    if (one.unused) Object.entries({ x: one.at[0] + 8, y: one.at[1] - 6 }).forEach(([key, value]) => text.setAttribute(key, value));
    circle.addEventListener("pointerenter", () => point([n]));
    circle.addEventListener("pointerleave", () => rest());
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
    for (const line of lines) {
      const item = document.createElement("li");
      item.append(...[line].flat());
      list.append(item);
    }
    element("told").replaceChildren(head, list);
  }

  function usual() {
    dim(null);
    point([]);
    told("Point at a link or a demand, or tap it.", ["Sliders set demands; the router splits each of them over its paths, at once, in this page."]);
  }

  /* Only these arcs stand out; all if null. */
  function dim(kept) {
    arcs.forEach((one, a) => one.group.classList.toggle("dimmed", kept !== null && !kept.has(a)));
  }

  function aboutArc(a) {
    const router = routers[which], lines = [];
    dim(null);
    point([data.arcs[a].from, data.arcs[a].to], a);
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
    if (chosen === a) lines.push(ifFailed(a));
    told(`${name(a)}${now}${volume(whole)}${data.counted ? `, its ${data.counted}` : ""}`, lines);
  }

  /* What the run knows of the failure of a link: a button that shows it, or how to find it out. */
  function ifFailed(a) {
    const arc = data.arcs[a], both = data.arcs.map((_, i) => i).filter(i =>
      data.arcs[i].from === arc.from && data.arcs[i].to === arc.to || data.arcs[i].from === arc.to && data.arcs[i].to === arc.from);
    const of = routers.findIndex(one => one.failed && one.failed.length === both.length && one.failed.every(i => both.includes(i)));
    const button = (text, i) => {
      const made = Object.assign(document.createElement("button"), { type: "button", textContent: text });
      made.addEventListener("click", () => fail(i));
      return [made];
    };
    if (which > 0 && (routers[which].failed || []).includes(a)) return button("show the network without failures", 0);
    if (of > 0) return button("show what the run knows of this link's failure", of);
    const ends = [arc.from, arc.to].map(n => data.nodes[n].name).join("-");
    return [`if it fails: cg4ai failures ${data.run || "RUN"} "${ends}" finds a router, and cg4ai explore shows it here`];
  }

  function aboutDemand(d) {
    const title = `${data.demands[d].name}: ${volume(demands[d])}`;
    if (!found) {
      dim(null);
      told(title, ["no router for this failure, so no splits"]);
      return;
    }
    const own = routers[which].paths.map((path, p) => ({ path, p })).filter(one => one.path.demand === d);
    point(data.demands[d].ends || []);
    dim(new Set(own.flatMap(one => found.splits[one.p] > 0.0005 ? one.path.arcs : [])));
    told(title, own.map((one, i) => [sample(i), ` ${per(found.splits[one.p])} via ${one.path.nodes.map(n => data.nodes[n].name).join("\u2192")}`]));
  }

  /* The colour of a demand's path in its bar. */
  function sample(number) {
    const made = document.createElement("i");
    made.className = `path path${number % COLOURS}`;
    return made;
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
    range.addEventListener("input", () => { demands[d] = range.value >= demand.most ? demand.most : Number(range.value); leaveTime(); update(); aboutDemand(d); });
    typed.addEventListener("change", () => {
      const value = Number(typed.value);
      if (typed.value !== "" && Number.isFinite(value) && value >= 0) demands[d] = value;
      else typed.value = short(demands[d]);
      leaveTime();
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
      while (one.shares.children.length < own.length) one.shares.append(sample(one.shares.children.length));
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
        leaveTime();
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
      const value = found ? found.loads[a] : 0, colour = `var(--u${level(value)})`, wide = failed.has(a) ? 2 : Math.max(hairline, width(value));
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
    paintFigureTexts();
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
    const bound = found.bound === null || moment() ? "" : `; optimum at least ${used(found.bound)}`;
    const scaled = data.counted ? `, of ${data.counted}` : "";
    const words = found.outside ? "outside the set: nothing is guaranteed" : BRIEF[tone] + scaled;
    return [`${bound}; `, Object.assign(document.createElement("span"), { className: tone, textContent: words })];
  }

  function paintFigures() {
    const bound = element("bound"), fixed = element("static"), stored = moment();
    element("mlu").textContent = found ? per(found.mlu) : "\u2013";
    element("mlureal").textContent = found && data.counted ? `of ${data.counted}, ${real(found.mlu)} of the real capacity;` : "";
    element("mlu").classList.toggle("over", Boolean(found) && found.mlu > 1 + HAIR);
    element("fullest").textContent = found && found.mlu > 0 ? name(found.loads.indexOf(found.mlu)) : "none";
    element("brief").textContent = found ? `${used(found.mlu)} on the fullest link, ${element("fullest").textContent}` : "no router for this failure";
    element("brief").classList.toggle("over", Boolean(found) && found.mlu > 1 + HAIR);
    element("further").replaceChildren(...further());
    // at a stored matrix the figures are those that the run measured
    const best = stored ? stored.optimum : found ? found.bound : null;
    const constant = stored ? stored.fixed : found ? found.fixed : null;
    element("boundname").textContent = stored ? "Optimum" : "Optimum at least";
    bound.textContent = best !== null ? used(best) : "unknown";
    element("gap").textContent = found && best > 0 ? `${stored ? "the router is" : "so at most"} ${per(Math.max(0, found.mlu / best - 1))} above it` : "";
    fixed.textContent = constant !== null ? used(constant) : "\u2013";
    element("staticgap").textContent = constant > 0 && found && found.mlu > 0 ? `${(constant / found.mlu).toFixed(2)} times the router's` : "";
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

  // ---- time -------------------------------------------------------------------------------------

  let timeline = null;
  const traffic = data.traffic;

  function leaveTime() {
    if (timeline) timeline.leave();
  }

  /* What the run measured at the matrix that is shown; null where demands are the reader's own. */
  function moment() {
    const at = timeline ? timeline.at() : null;
    return at === null || which !== 0 ? null : { ours: traffic.ours[at], optimum: traffic.optimum[at], fixed: traffic.fixed ? traffic.fixed[at] : null };
  }

  function startTime() {
    element("timebox").hidden = false;
    if (!traffic.times.length) { element("timebox").textContent = traffic.about; return; }
    const vectors = cg4ai.array(traffic.vectors), many = demands.length;
    const fixed = traffic.fixed ? [["best static split", traffic.fixed, "fixed"]] : [];
    const lines = [...fixed, ["this router", traffic.ours, "ours"], ["optimum", traffic.optimum, "optimum"]];
    timeline = cg4ai.timeline(element("timebox"), {
      times: traffic.times, lines, about: traffic.about, outside: traffic.inside.map(one => !one),
      tell: i => { demands.set(vectors.subarray(i * many, (i + 1) * many)); choose(null); update(); },
      per,
    });
  }

  // ---- controls ---------------------------------------------------------------------------------

  const SETS = {
    least: one => one.least, usual: one => one.usual, most: one => one.most,
    random: one => one.least + Math.random() * (one.most - one.least),
  };
  document.querySelectorAll("[data-all]").forEach(button => button.addEventListener("click", () => {
    leaveTime();
    demands.set(within(data.demands.map(SETS[button.dataset.all])));
    choose(null);
    update();
  }));
  element("search").addEventListener("input", () => { limit = SHOWN; listed(); });
  element("more").addEventListener("click", () => { limit += 4 * SHOWN; listed(); });
  if (routers.length > 1) {
    element("failurebox").hidden = false;
    routers.forEach((one, i) => element("failure").append(Object.assign(document.createElement("option"), { value: i, textContent: one.label })));
    element("failure").addEventListener("change", event => fail(Number(event.target.value)));
  }

  /* The router of a failure; 0: of no failure. */
  function fail(i) {
    which = i;
    element("failure").value = i;
    choose(null);
    worstCases();
    update();
  }

  function inLegend(text) {
    const item = document.createElement("span"), sample = document.createElementNS(SVG, "svg");
    sample.setAttribute("viewBox", "0 0 40 16");
    const line = node(sample, "line", { x1: 0, y1: 8, x2: 40, y2: 8 });
    item.append(sample, text);
    element("legend").append(item);
    return line;
  }

  /* What the colours of bars under demands are. */
  function barLegend() {
    const most = Math.max(...routers[0].paths.reduce((counts, path) => { counts[path.demand] += 1; return counts; }, data.demands.map(() => 0)));
    const items = ["first path", "second", "third", "fourth"].slice(0, most).map((text, i) => {
      const item = document.createElement("span");
      item.append(sample(i), ` ${text}`);
      return item;
    });
    if (most > COLOURS) items.push("then the same colours again");
    element("bars").replaceChildren("Bars: how a demand is split. ", ...items);
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
  element("router").classList.toggle("scaled", Boolean(data.counted));   // its figures are long
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
  barLegend();
  sums();
  if (traffic) startTime();
  usual();
  worstCases();
  update();
  listed();
  globalThis.explorer = {
    answer,
    set: (vector, failure = 0) => { demands.set(vector); which = failure; update(); return found; },
    demands: () => Array.from(demands),
    found: () => found,
    time: i => { timeline.go(i); return moment(); },
  };
})();
