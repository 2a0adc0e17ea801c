/* The page of a router: sliders in, splits by the packed program, links painted by their loads. */
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = id => document.getElementById(id);
  const SHOWN = 24;               // sliders made at once: a whole matrix has hundreds
  const COLOURS = 4;              // of paths in bars
  const HAIR = 1e-9;              // rounding

  // ---- figures ----------------------------------------------------------------------------------

  const per = value => (100 * value).toFixed(1) + " %";
  /* A utilisation: of counted capacities, where these are not the real ones, and of those. */
  const real = value => data.factor ? per(data.factor * value) : "unknown";
  const used = value => data.counted ? `${per(value)} (${real(value)} of the real capacity)` : per(value);
  const count = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });
  const volume = value => count.format(value);
  const short = value => Number(value.toPrecision(7));     // in a field

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
      for (const arc of path.arcs) result[arc] += flow / capacities.now[arc];
    });
    return result;
  }

  function lower(router, demands) {
    if (!router.prices || capacities.any()) return null;     // which are of the run's capacities
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

  let which = 0, chosen = null, limit = SHOWN, found = null, anew = null;     // the optimum with changed capacities
  const demands = Float64Array.from(data.demands, one => one.usual);
  const order = data.demands.map((_, d) => d).sort((a, b) => data.demands[b].most - data.demands[a].most || a - b);
  const sliders = new Map();

  // ---- what is pointed at ------------------------------------------------------------------------

  const name = a => `${data.nodes[data.arcs[a].from].name}\u2192${data.nodes[data.arcs[a].to].name}`;
  const map = element("map");
  const drawn = cg4ai.networkMap(map, data, { tell: a => { if (chosen === null) aboutArc(a); }, rest: () => rest(), choose });
  const capacities = cg4ai.capacities(element("capacitybox"), data.arcs, {
    unit: data.counted && data.factor ? data.factor : 1, name, volume, changed: update, follows,
  });

  function choose(a) {
    chosen = a;
    drawn.mark(a);
    capacities.choose(a === null || (routers[which].failed || []).includes(a) ? null : a);
    rest();
  }

  /* What is told while nothing is pointed at. */
  function rest() {
    if (chosen === null) usual(); else aboutArc(chosen);
  }

  /* The nodes of a path; a line may break before an arrow. */
  const via = path => path.nodes.map(n => data.nodes[n].name).join("\u200b\u2192");

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
    drawn.dim(null);
    drawn.point([]);
    told("Point at a link or a demand, or tap it.", ["Sliders set demands; the router splits each of them over its paths, at once, in this page."]);
  }

  function aboutArc(a) {
    const router = routers[which], lines = [];
    drawn.dim(null);
    drawn.point([data.arcs[a].from, data.arcs[a].to], a);
    if (found) {
      const users = router.paths.map((path, p) => ({ path, p, flow: demands[path.demand] * found.splits[p] }))
        .filter(one => one.path.arcs.includes(a) && found.splits[one.p] > 0.0005 && one.flow > 0).sort((x, y) => y.flow - x.flow);
      for (const one of users.slice(0, 6)) {
        lines.push(`${volume(one.flow)} of ${data.demands[one.path.demand].name}: ${per(found.splits[one.p])} of it goes via ${via(one.path)}`);
      }
      if (users.length > 6) lines.push(`and ${users.length - 6} more`);
      if (!users.length) lines.push("carries nothing now");
    }
    const now = found ? `, ${per(found.loads[a])} of ` : ", capacity ", whole = capacities.now[a];
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
      drawn.dim(null);
      told(title, ["no router for this failure, so no splits"]);
      return;
    }
    const own = routers[which].paths.map((path, p) => ({ path, p })).filter(one => one.path.demand === d);
    drawn.point(data.demands[d].ends || []);
    drawn.dim(new Set(own.flatMap(one => found.splits[one.p] > 0.0005 ? one.path.arcs : [])));
    told(title, own.map((one, i) => [sample(i), ` ${per(found.splits[one.p])} via ${via(one.path)}`]));
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
    const failed = new Set(routers[which].failed || []), worst = routers[which].worst;
    const labels = table.map((cell, a) => {
      const value = found ? found.loads[a] : 0;
      cell.row.classList.toggle("over", cg4ai.overloaded(value));
      cell.now.textContent = failed.has(a) ? "failed" : found ? used(value) : "\u2013";
      cell.worst.textContent = worst ? used(worst.loads[a] * data.arcs[a].capacity / capacities.now[a]) : "\u2013";
      cell.inner.style.width = `${Math.min(100, 100 * value)}%`;
      cell.inner.style.background = cg4ai.colour(value);
      return `${name(a)}, ${failed.has(a) ? "failed" : found ? `${used(value)} used` : "no router"}`;
    });
    drawn.paint({ loads: found && found.loads, failed, labels });
  }

  function promise() {
    const router = routers[which];
    if (!found) return [["bad", router.words]];
    if (found.outside) return [["warn", `Outside the set of demands: ${found.outside}. Nothing is guaranteed here.`]];
    if (capacities.any() && !capacities.grown()) return [["warn", "A link has less capacity than in the run: nothing is guaranteed of these splits. cg4ai update makes a router for it."]];
    const lines = [[router.tone, router.words]];
    if (router.shielded && found.theta > 0) lines.push(["", `At these demands the shield acts: it moves the splits ${per(found.theta)} of the way to those that fit.`]);
    else if (router.shielded) lines.push(["", "At these demands the shield does nothing: the network's own splits fit."]);
    if (capacities.any()) lines.push(["", "No link has less capacity than in the run, so that this holds now, too."]);
    if (router.ratio && !capacities.any()) lines.push(["", `Proven: never more than ${router.ratio.toFixed(4)} times the optimum in the set.`]);
    return lines;
  }

  const BRIEF = { good: "no overload in the set: guaranteed", warn: "not proven", bad: "capacities are not kept" };

  /* What the panel of figures says, in a few words for where it has left the screen. */
  function further() {
    if (!found) return [];
    const lost = found.outside || capacities.any() && !capacities.grown();
    const tone = lost ? "warn" : routers[which].tone;
    const bound = found.bound === null || moment() ? "" : `; optimum at least ${used(found.bound)}`;
    const scaled = data.counted ? `, of ${data.counted}` : "";
    const words = found.outside ? "outside the set: nothing is guaranteed" : lost ? "less capacity: nothing is guaranteed" : BRIEF[tone] + scaled;
    return [`${bound}; `, Object.assign(document.createElement("span"), { className: tone, textContent: words })];
  }

  function paintFigures() {
    const bound = element("bound"), fixed = element("static"), stored = moment();
    element("mlu").textContent = found ? per(found.mlu) : "\u2013";
    element("mlureal").textContent = found && data.counted ? `of ${data.counted}, ${real(found.mlu)} of the real capacity;` : "";
    element("mlu").classList.toggle("over", Boolean(found) && cg4ai.overloaded(found.mlu));
    element("fullest").textContent = found && found.mlu > 0 ? name(found.loads.indexOf(found.mlu)) : "none";
    element("brief").textContent = found ? `${used(found.mlu)} on the fullest link, ${element("fullest").textContent}` : "no router for this failure";
    element("brief").classList.toggle("over", Boolean(found) && cg4ai.overloaded(found.mlu));
    element("further").replaceChildren(...further());
    // at a stored matrix the figures are those that the run measured
    const best = stored ? stored.optimum : anew ? anew.lower : found ? found.bound : null;
    const constant = stored ? stored.fixed : found ? found.fixed : null;
    element("boundname").textContent = stored ? "Optimum" : "Optimum at least";
    bound.textContent = best !== null ? used(best) : "unknown";
    element("gap").textContent = found && best > 0 ? `${stored ? "the router is" : "so at most"} ${per(Math.max(0, found.mlu / best - 1))} above it` : "";
    fixed.textContent = constant !== null ? used(constant) : "\u2013";
    element("staticgap").textContent = constant > 0 && found && found.mlu > 0 ? `${(constant / found.mlu).toFixed(2)} times the router's` : "";
    element("promise").replaceChildren(...promise().map(([tone, text]) =>
      Object.assign(document.createElement("span"), { className: tone, textContent: `${text} ` })));
  }

  /* What changed capacities would give, in words; and the optimum with them. */
  function follows() {
    const router = routers[which], lines = [], now = capacities.now;
    if (found && found.mlu > 0) {
      const own = chosen === null ? "" : `this link at ${used(found.loads[chosen])}, `;
      lines.push(`With the router's splits as they are: ${own}the fullest link, ${name(found.loads.indexOf(found.mlu))}, at ${used(found.mlu)}.`);
    }
    if (!router.paths) return lines;
    anew = cg4ai.bestRouting(router.paths, demands, now);
    paintFigures();
    const ends = per(anew.lower) === per(anew.upper) ? "" : `${per(anew.lower)} to `;
    lines.push(`Routed anew over the same paths: the fullest link at ${ends}${used(anew.upper)} at best.`);
    if (router.constant) lines.push(...guaranteed(router, now));
    return lines;
  }

  /* How much of the set some router for these capacities can guarantee: with a constant split. */
  function guaranteed(router, now) {
    const was = Math.max(...router.constant), same = Math.max(...router.constant.map((load, a) => load * data.arcs[a].capacity / now[a]));
    // limits on single demands alone: no vector is worse than the largest of all
    const level = rows ? same : Math.min(same, cg4ai.bestRouting(router.paths, data.demands.map(one => one.most), now).upper);
    const down = value => (Math.floor(1000 * value + HAIR) / 1000).toFixed(3);
    const least = rows ? " or more" : "";
    return [`Over the same paths a router for these capacities can guarantee ${down(1 / level)} times the set${least}, against ${down(1 / was)} times in the run: ${level > 1 + HAIR ? rows ? "whether all of it, is open" : "not all of it" : "all of it"}.`,
      "cg4ai update makes that router, from a file of the network with these capacities."];
  }

  function update() {
    found = answer(demands, which);
    anew = null;
    paintMap();
    paintFigures();
    capacities.refresh();
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
    return at === null || which !== 0 || capacities.any() ? null : { ours: traffic.ours[at], optimum: traffic.optimum[at], fixed: traffic.fixed ? traffic.fixed[at] : null };
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
  cg4ai.loadLegend(element("legend"), data.nodes.length, { of: data.counted, failures: routers.some(one => one.failed) });
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
    capacity: (a, value) => { choose(a); capacities.set(a, value); return { found, lines: follows(), anew }; },
    time: i => { timeline.go(i); return moment(); },
  };
})();
