/* Capacities that a reader changes, link by link, and what would follow. */
"use strict";
globalThis.cg4ai = globalThis.cg4ai || {};
(function () {
  const SLIDER = 3, STEPS = 300;  // times the capacity at the right end; positions
  const PAUSE = 120;              // milliseconds without a change after which the optimum is looked for

  /* In `box`, a panel about the link that is chosen. `unit`: what a shown capacity is multiplied by;
     `name(a)` and `volume(value)` write links and capacities, `changed()` is called after a change,
     `follows()` gives the lines below, which may take a moment. */
  cg4ai.capacities = function (box, arcs, { unit, name, volume, changed, follows }) {
    const own = Float64Array.from(arcs, arc => arc.capacity), now = own.slice();
    const make = (kind, given) => Object.assign(document.createElement(kind), given);
    const back = a => arcs.findIndex(arc => arc.from === arcs[a].to && arc.to === arcs[a].from);
    const label = make("label", { htmlFor: "capacity" }), typed = make("input", { type: "number", id: "capacity", step: "any", min: 0 });
    const range = make("input", { type: "range", min: 1, max: STEPS, step: 1 });
    const both = make("input", { type: "checkbox", id: "both", checked: true }), bothBox = make("label", { className: "both" });
    const reset = make("button", { type: "button", textContent: "all as in the run", id: "reset" });
    const line = make("p", { className: "change" }), list = make("ul", {}), others = make("p", { className: "quiet" });
    range.setAttribute("aria-label", "capacity");
    bothBox.append(both, " both directions");
    line.append(label, typed, range, bothBox, reset);
    box.append(line, list, others);
    let chosen = null, timer = null;

    const any = () => now.some((value, a) => value !== own[a]);

    function set(a, value) {
      if (!(Number.isFinite(value) && value > 0)) { paint(); return; }
      now[a] = value;
      if (both.checked && back(a) >= 0) now[back(a)] = own[back(a)] * value / own[a];
      paint();
      changed();
    }

    typed.addEventListener("change", () => set(chosen, typed.value === "" ? NaN : Number(typed.value) * unit));
    range.addEventListener("input", () => set(chosen, own[chosen] * Number(range.value) / STEPS * SLIDER));
    reset.addEventListener("click", () => { now.set(own); paint(); changed(); });

    /* The panel; the lines below follow when nothing has changed for a moment. */
    function paint() {
      box.hidden = chosen === null && !any();
      line.classList.toggle("none", chosen === null);
      reset.hidden = !any();
      if (chosen !== null) {
        label.textContent = `Capacity of ${name(chosen)}`;
        typed.value = Number((now[chosen] / unit).toPrecision(7));
        range.value = now[chosen] / own[chosen] / SLIDER * STEPS;
        range.setAttribute("aria-valuetext", volume(now[chosen] / unit));
        bothBox.hidden = back(chosen) < 0;
      }
      const list = Array.from(now.keys()).filter(a => now[a] !== own[a]);
      others.textContent = list.length ? `Changed: ${list.map(a => `${name(a)} ${volume(own[a] / unit)} to ${volume(now[a] / unit)}`).join(", ")}.` : "";
    }

    /* The lines are asked for again. */
    function refresh() {
      clearTimeout(timer);
      if (!any()) { list.replaceChildren(make("li", { textContent: "Set another one to see what it would give." })); return; }
      timer = setTimeout(() => list.replaceChildren(...follows().map(text => make("li", { textContent: text }))), PAUSE);
    }

    refresh();
    paint();
    return {
      now, any, set, refresh,
      /* Whether no link has less than it had. */
      grown: () => now.every((value, a) => value >= own[a]),
      choose: a => { chosen = a; paint(); },
    };
  };
})();
