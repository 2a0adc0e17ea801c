/* The map of a network: links painted by their loads, names and figures as far as there is room. */
"use strict";
globalThis.cg4ai = globalThis.cg4ai || {};
(function () {
  const SVG = "http://www.w3.org/2000/svg";
  const CLASSES = [[0.1, "up to 10 %"], [0.25, "25 %"], [0.5, "50 %"], [0.75, "75 %"], [0.9, "90 %"], [1, "100 %"], [Infinity, "overloaded"]];
  const HAIR = 1e-9;              // what a link may be above 1 by rounding
  const TOUCH = 16;               // pixels of the screen that belong to a direction of a link
  const LEAST_SHOWN = 0.005;      // a utilisation that is written as 0 % says nothing
  const PLACES = [0.5, 0.35, 0.65];   // along a link, where its utilisation may stand
  const SIDES = [[14, 6, "start"], [-14, 6, "end"], [0, 26, "middle"], [0, -14, "middle"], [11, 21, "start"], [-11, 21, "end"], [11, -10, "start"], [-11, -10, "end"]];

  /* Whether a link carries more than its capacity, and the colour of its class of utilisation. */
  cg4ai.overloaded = value => value > 1 + HAIR;
  const level = value => cg4ai.overloaded(value) ? CLASSES.length - 1 : CLASSES.findIndex(([top]) => value <= top || top === 1);
  cg4ai.colour = value => `var(--u${level(value)})`;

  /* Lines are thinner where nodes are many, and wider the fuller they are. */
  const fineness = nodes => Math.max(0.5, Math.min(1, Math.sqrt(40 / nodes)));
  const widthOf = (value, fine) => fine * (2 + 10 * Math.min(1.2, Math.max(0, value)));

  function node(parent, name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    parent.append(made);
    return made;
  }

  /* What the looks of links mean; `of`: of which capacities, `failures`: whether links can fail. */
  cg4ai.loadLegend = function (box, nodes, { of, failures }) {
    const add = text => {
      const item = document.createElement("span"), sample = document.createElementNS(SVG, "svg");
      sample.setAttribute("viewBox", "0 0 40 16");
      item.append(sample, text);
      box.append(item);
      return node(sample, "line", { x1: 0, y1: 8, x2: 40, y2: 8 }).style;
    };
    CLASSES.forEach(([top, text], i) => {
      const style = add(text);
      style.stroke = `var(--u${i})`;
      style.strokeWidth = widthOf(top === Infinity ? 1.1 : top - 0.1, fineness(nodes));
      if (top === Infinity) style.strokeDasharray = "10 5";     // ends with a whole dash
    });
    if (of) box.append(Object.assign(document.createElement("span"), { textContent: `of ${of}` }));
    if (failures) Object.assign(add("failed"), { stroke: "var(--quiet)", strokeWidth: 2, strokeDasharray: "3 9" });
  };

  /* In the SVG element `map`. `tell(a)` is called for the link that is pointed at, `rest()` when
     none is any more, `choose(a)` for one that is clicked; null: for the one that was chosen. */
  cg4ai.networkMap = function (map, data, { tell, rest, choose }) {
    const FINE = fineness(data.nodes.length), width = value => widthOf(value, FINE);
    const ASIDE = 8 * FINE;         // of a line from the middle of its link, whose directions are side by side
    const RADIUS = 7 * FINE, BACK = 12 * FINE;
    const arcs = [], names = [];
    let state = { loads: null, failed: new Set(), labels: data.arcs.map(() => "") }, chosen = null;
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
    addEventListener("resize", () => { fitted(); paint(); });

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
      const values = arcs.map((_, a) => state.loads ? state.loads[a] : 0);
      const sorted = arcs.map((_, a) => a).sort((a, b) => values[b] - values[a]);
      const chosen = cg4ai.placeLabels(sorted.map(a => values[a] >= LEAST_SHOWN ? arcs[a].spots : []), taken.slice());
      sorted.forEach((a, i) => {
        const one = arcs[a], [x1, y1, x2, y2] = one.line, high = 0.85 * size;
        const [left, top, wide, tall] = chosen[i] >= 0 ? one.spots[chosen[i]] : [(x1 + x2) / 2 - one.way[1] * 14 - 1.2 * high, (y1 + y2) / 2 + one.way[0] * 14 - high / 2, 2.4 * high, high];
        one.figure.setAttribute("x", left + wide / 2);
        one.figure.setAttribute("y", top + 0.84 * tall);
        one.figure.textContent = state.loads ? `${Math.round(100 * values[a])} %` : "";
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
      const toggle = () => choose(chosen === a ? null : a);
      group.addEventListener("pointerenter", () => tell(a));
      group.addEventListener("focus", () => tell(a));
      group.addEventListener("pointerleave", rest);
      group.addEventListener("click", toggle);
      group.addEventListener("keydown", event => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); }
        if (event.key === "Escape") choose(null);
      });
    });
    data.nodes.forEach((one, n) => {
      const circle = node(dots, "circle", { class: one.unused ? "unused" : "", r: (one.unused ? 4 : 7) * FINE, cx: one.at[0], cy: one.at[1] });
      if (one.unused) node(circle, "title", {}).textContent = `${one.name}: on no path`;
      const text = node(texts, "text", { class: one.unused ? "name crowded" : "name" });
      text.textContent = one.name;
      names.push(text);
      if (one.unused) Object.entries({ x: one.at[0] + 8, y: one.at[1] - 6 }).forEach(([key, value]) => text.setAttribute(key, value));
      circle.addEventListener("pointerenter", () => point([n]));
      circle.addEventListener("pointerleave", rest);
    });

    /* Utilisations `loads` (null: none is known), the set of `failed` arcs, and what each is called. */
    function paint(next = state) {
      state = next;
      arcs.forEach((one, a) => {
        const value = state.loads ? state.loads[a] : 0, down = state.failed.has(a), wide = down ? 2 : Math.max(hairline, width(value));
        one.group.classList.toggle("failed", down);
        one.shown.style.stroke = down ? "" : cg4ai.colour(value);
        one.shown.style.strokeWidth = wide;
        one.shown.style.strokeDasharray = cg4ai.overloaded(value) ? "14 5" : "";
        const [x, y] = one.end, [ux, uy] = one.way, half = down ? 0 : wide / 2 + 5;
        one.tip.setAttribute("d", `M${x + ux * half} ${y + uy * half}L${x - uy * half} ${y + ux * half}L${x + uy * half} ${y - ux * half}Z`);
        one.tip.style.fill = cg4ai.colour(value);
        one.group.setAttribute("aria-label", state.labels[a]);
      });
      paintFigureTexts();
    }

    /* Only these arcs stand out; all if null. */
    function dim(kept) {
      arcs.forEach((one, a) => one.group.classList.toggle("dimmed", kept !== null && !kept.has(a)));
    }

    /* The arc that is chosen; null: none. */
    function mark(a) {
      chosen = a;
      arcs.forEach((one, i) => one.group.classList.toggle("chosen", i === a));
    }

    fitted();
    return { paint, point, dim, mark };
  };
})();
