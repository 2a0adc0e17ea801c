/* The page of a model: a form in, its prediction by the packed program, every rule at that input. */
"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = id => document.getElementById(id);
  const run = cg4ai.program(data.program), form = data.form, fields = form.fields || [];
  const STEPS = 1000;             // of a slider
  const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 8 });
  const small = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "scientific" });
  const figure = value => value !== 0 && Math.abs(value) < 1e-4 ? small.format(value).replace("E", "e") : number.format(value);
  const made = (name, properties = {}, ...inner) => {
    const one = Object.assign(document.createElement(name), properties);
    one.append(...inner);
    return one;
  };

  // ---- the input --------------------------------------------------------------------------------

  const cells = fields.map(one => one.usual);   // null: empty
  let image = form.kind === "pixels" ? new Float64Array(form.side * form.side) : null;

  /* Features as cg4ai.apps.tabular.encoding has them. */
  function features() {
    if (image) return image;
    const result = [];
    fields.forEach((one, i) => {
      const cell = cells[i];
      if (one.kind === "text") for (const value of one.values) result.push(+(cell === value));
      else result.push(cell === null ? one.usual : Number(cell));
      if (one.empty) result.push(+(cell === null));
    });
    return Float64Array.from(result);
  }

  const controls = fields.map((one, i) => {
    const id = `field-${i}`, label = made("label", { htmlFor: id, textContent: one.name });
    if (one.kind !== "number") {
      const choice = made("select", { id });
      const values = one.kind === "boolean" ? [["1", "yes"], ["0", "no"]] : one.values.map(value => [value, value]);
      for (const [value, text] of values) choice.append(made("option", { value, textContent: text }));
      if (one.empty) choice.append(made("option", { value: "\u0000", textContent: "(empty)" }));
      choice.addEventListener("change", () => {
        cells[i] = choice.value === "\u0000" ? null : one.kind === "boolean" ? Number(choice.value) : choice.value;
        update();
      });
      element("fields").append(label, choice);
      return () => { choice.value = cells[i] === null ? "\u0000" : String(cells[i]); };
    }
    const span = one.most - one.least;
    // in whole steps: a slider of other numbers ends beyond the range by rounding, or a step before
    const range = made("input", { type: "range", min: 0, max: STEPS, step: 1 });
    const typed = made("input", { type: "number", id, step: "any", placeholder: one.empty ? "empty" : "" });
    const text = () => cells[i] === null ? "" : Number(Number(cells[i]).toPrecision(7));
    range.setAttribute("aria-label", one.name);
    range.addEventListener("input", () => {
      const steps = Number(range.value);
      cells[i] = steps === STEPS ? one.most : one.least + span * steps / STEPS;
      update();
    });
    typed.addEventListener("change", () => {
      const value = Number(typed.value);
      if (typed.value === "") cells[i] = one.empty ? null : cells[i];
      else if (Number.isFinite(value)) cells[i] = value;
      typed.value = text();
      update();
    });
    element("fields").append(label, range, typed);
    return () => {
      const value = cells[i] ?? one.usual;
      range.value = span > 0 ? STEPS * (value - one.least) / span : 0;
      range.setAttribute("aria-valuetext", cells[i] === null ? "empty" : figure(value));
      if (document.activeElement !== typed) typed.value = text();
    };
  });
  element("fields").addEventListener("submit", event => event.preventDefault());

  // ---- an image ---------------------------------------------------------------------------------

  const cursor = { x: 14, y: 14, shown: false };

  function paintImage() {
    const canvas = element("image"), side = form.side, context = canvas.getContext("2d"), pixels = context.createImageData(side, side);
    image.forEach((value, i) => {
      const grey = Math.round(255 * value), here = cursor.shown && i === cursor.y * side + cursor.x;
      pixels.data.set(here ? [80 + grey * 0.5, 160, 255, 255] : [grey, grey, grey, 255], 4 * i);
    });
    context.putImageData(pixels, 0, 0);
  }

  function brush(x, y, most = 1) {
    const side = form.side;
    for (let dy = -1; dy <= 1; dy++) for (let dx = -1; dx <= 1; dx++) {
      if (x + dx < 0 || x + dx >= side || y + dy < 0 || y + dy >= side) continue;
      const place = (y + dy) * side + x + dx;
      image[place] = Math.max(image[place], dx || dy ? 0.45 * most : most);
    }
  }

  if (image) {
    const canvas = element("image");
    element("pad").hidden = false;
    canvas.width = canvas.height = form.side;
    let down = false;
    const draw = event => {
      const box = canvas.getBoundingClientRect();
      brush(Math.floor((event.clientX - box.left) / box.width * form.side), Math.floor((event.clientY - box.top) / box.height * form.side));
      update();
    };
    canvas.addEventListener("pointerdown", event => { down = true; canvas.setPointerCapture(event.pointerId); draw(event); });
    canvas.addEventListener("pointermove", event => { if (down) draw(event); });
    canvas.addEventListener("pointerup", () => { down = false; });
    canvas.addEventListener("focus", () => { cursor.shown = true; paintImage(); });
    canvas.addEventListener("blur", () => { cursor.shown = false; paintImage(); });
    canvas.addEventListener("keydown", event => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (step) { cursor.x = Math.min(form.side - 1, Math.max(0, cursor.x + step[0])); cursor.y = Math.min(form.side - 1, Math.max(0, cursor.y + step[1])); }
      else if (event.key === " ") brush(cursor.x, cursor.y);
      else if (event.key === "Delete" || event.key === "Backspace") image[cursor.y * form.side + cursor.x] = 0;
      else return;
      event.preventDefault();
      update();
    });
  }

  // ---- what follows -----------------------------------------------------------------------------

  /* The class decided for: the first of the largest score. */
  const decided = scores => scores.reduce((top, value, i) => value > scores[top] ? i : top, 0);

  const listed = data.rules.map(one => one.listed && { ...one.listed, inputs: cg4ai.array(one.listed.inputs) });

  function same(rule, inputs) {
    if (!rule) return -1;
    for (let k = 0; k < rule.slack.length; k++) {
      let i = 0;
      while (i < inputs.length && rule.inputs[k * inputs.length + i] === inputs[i]) i++;
      if (i === inputs.length) return k;
    }
    return -1;
  }

  /* All that the page shows for these features; also what tests read. */
  function answer(inputs) {
    const found = run(inputs).map(one => Float64Array.from(one));
    const [outputs, theta, decisive] = found;
    return {
      outputs, theta: theta[0],
      decided: data.outputs.kind === "classes" ? decided(decisive.subarray(0, data.outputs.names.length)) : null,
      rules: data.rules.map((one, r) => {
        if (one.at !== null) return { speaks: found[one.at + 1][0] !== 0, slack: found[one.at][0], listed: -1 };
        const place = same(listed[r], inputs);
        return { speaks: place >= 0, slack: place >= 0 ? listed[r].slack[place] : null, listed: place };
      }),
    };
  }

  function paintScores(found) {
    const names = data.outputs.names, classes = data.outputs.kind === "classes";
    element("answer").textContent = classes ? `${data.outputs.target}: ${names[found.decided]}`
      : names.length === 1 ? `${names[0]}: ${figure(found.outputs[0])}` : data.outputs.target;
    const likely = classes && data.outputs.scores === "probability";
    element("kind").textContent = !classes ? "" : likely ? "Probability of each" : `${data.outputs.scores[0].toUpperCase()}${data.outputs.scores.slice(1)} of each, which is no probability`;
    element("scores").tBodies[0].replaceChildren(...(names.length === 1 ? [] : names.map((name, i) => {
      const value = found.outputs[i], cells = [made("th", { scope: "row", textContent: name })];
      if (likely) {
        const inner = made("i"), bar = made("span", { className: "bar" }, inner);
        inner.style.width = `${100 * Math.min(1, Math.max(0, value))}%`;
        cells.push(made("td", {}, bar));
      }
      cells.push(made("td", { className: "number", textContent: classes ? value.toFixed(4) : figure(value) }));
      return made("tr", {}, ...cells);
    })));
    element("moved").textContent = !data.shielded ? "" : found.theta > 0
      ? `The shield acts here: it moves the prediction ${(100 * found.theta).toFixed(2)} % of the way to its anchor.`
      : "The shield does nothing here: the members' own prediction keeps its rules.";
  }

  function words(rule, now) {
    if (now.speaks) {
      const tolerance = data.rules[rule].tolerance;
      const room = now.slack >= 0 ? `margin ${figure(now.slack)}`
        : now.slack < -tolerance ? `broken by ${figure(-now.slack)}` : `kept within the tolerance of ${figure(tolerance)}`;
      return now.listed >= 0 ? `This input is listed (${data.rules[rule].listed.labels[now.listed]}): ${room}.` : `At this input: ${room}.`;
    }
    const one = data.rules[rule];
    if (one.at !== null) return "This input lies outside the region of the rule: it says nothing here.";
    return one.silent || "This input is none of those that the rule lists: it says nothing here.";
  }

  function paintRules(found) {
    element("rules").replaceChildren(...data.rules.map((one, r) => {
      const now = found.rules[r], broken = now.speaks && now.slack < -one.tolerance, kept = now.speaks ? !broken : one.strength !== "violated";
      const strength = broken ? "violated" : one.strength;
      // a strength that is about other inputs promises nothing here
      const elsewhere = !now.speaks && (one.at !== null || listed[r]);
      const tone = strength === "violated" || strength === "unverified" ? "bad" : elsewhere ? "quiet" : "good";
      const badge = made("span", { className: `badge ${tone}`, textContent: strength });
      return made("div", { className: `rule ${now.speaks ? kept ? "good" : "bad" : ""}` },
        made("h3", {}, one.name, badge), made("p", { className: "now", textContent: words(r, now) }),
        made("p", { className: "quiet", textContent: one.statement }));
    }));
    if (!data.rules.length) element("rules").append(made("p", { className: "quiet", textContent: "The run has no rules." }));
  }

  function paintOutside(inputs) {
    const far = data.ends ? data.features.filter((_, i) => inputs[i] < data.ends[0][i] || inputs[i] > data.ends[1][i]) : [];
    // rules that hold at every input speak here, too
    const silent = data.rules.filter((one, r) => one.at !== null && !found.rules[r].speaks).map(one => one.name);
    const beyond = far.length ? `Outside the ranges of the training data: ${far.slice(0, 5).join(", ")}${far.length > 5 ? " and more" : ""}.` : "";
    const unkept = far.length && silent.length ? `Outside the region of ${silent.join(" and of ")}: not guaranteed here.` : "";
    element("outside").textContent = [beyond, unkept].filter(Boolean).join(" ");
  }

  let found = null;
  /* `example`: which of them the input is; none once it was changed. */
  function update(example = "") {
    const inputs = features();
    element("example").value = example;
    found = answer(inputs);
    controls.forEach(refresh => refresh());
    if (image) paintImage();
    paintScores(found);
    paintRules(found);
    paintOutside(inputs);
  }

  // ---- controls ---------------------------------------------------------------------------------

  function example(number) {
    const one = data.examples[number];
    if (image) image = listed[one.rule].inputs.slice(one.place * image.length, (one.place + 1) * image.length);
    else one.cells.forEach((cell, i) => { cells[i] = cell; });
    update(number);
  }

  element("usual").addEventListener("click", () => {
    if (image) image.fill(0);
    fields.forEach((one, i) => { cells[i] = one.usual; });
    update();
  });
  element("random").addEventListener("click", () => {
    if (image) image = image.map(() => Math.random());
    fields.forEach((one, i) => {
      const draw = Math.random();
      cells[i] = one.kind === "text" ? one.values[Math.floor(draw * one.values.length)]
        : one.kind === "boolean" ? +(draw < 0.5) : one.least + draw * (one.most - one.least);
    });
    update();
  });
  if (image) { element("usual").textContent = "clear"; element("random").textContent = "noise"; }
  if (data.examples.length) {
    const choice = element("example");
    choice.hidden = false;
    choice.append(made("option", { value: "", textContent: "examples" }));
    data.examples.forEach((one, i) => choice.append(made("option", { value: i, textContent: one.label })));
    choice.addEventListener("change", () => { if (choice.value !== "") example(choice.value); });
  }

  element("title").textContent = data.title;
  element("about").textContent = data.about;
  element("foot").textContent = data.foot;
  if (image && data.examples.length) example("0");    // an empty image is none of a digit
  else update();
  globalThis.explorer = { answer, features, found: () => found };
})();
