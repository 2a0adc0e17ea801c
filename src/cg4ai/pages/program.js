/* Runs a packed program (pages/program.py): arrays of float64 and known shapes, one step at a time.

   const run = cg4ai.program(data);   run(inputs) -> one Float64Array for each output

   Steps are prepared once: where numbers go is decided then, so that a run is loops alone. */
"use strict";
const cg4ai = globalThis.cg4ai || (globalThis.cg4ai = {});

cg4ai.bytes = function (text) {
  const raw = atob(text), result = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) result[i] = raw.charCodeAt(i);
  return result.buffer;
};

cg4ai.array = function (data) {
  const raw = cg4ai.bytes(data.bytes);
  const numbers = data.kind === "f4" ? new Float32Array(raw) : new Float64Array(raw);
  if (data.at === undefined) return Float64Array.from(numbers);
  const result = new Float64Array(data.size), places = new Uint32Array(cg4ai.bytes(data.at));
  places.forEach((place, i) => { result[place] = numbers[i]; });
  return result;
};

cg4ai.program = function (data) {
  const size = shape => shape.reduce((a, b) => a * b, 1);
  const at = (dim, shape) => dim < 0 ? dim + shape.length : dim;
  const number = one => one !== null && typeof one === "object" && "n" in one
    ? { inf: Infinity, "-inf": -Infinity, nan: NaN }[one.n] : one;

  function strides(shape) {
    const result = new Array(shape.length);
    let step = 1;
    for (let i = shape.length - 1; i >= 0; i--) { result[i] = step; step *= shape[i]; }
    return result;
  }

  /* For every place of an array of this shape, where `start + sum index * step` lies. */
  function places(shape, steps, start = 0) {
    const result = new Int32Array(size(shape)), index = new Array(shape.length).fill(0);
    let place = start;
    for (let i = 0; i < result.length; i++) {
      result[i] = place;
      for (let d = shape.length - 1; d >= 0; d--) {
        place += steps[d];
        if (++index[d] < shape[d]) break;
        place -= steps[d] * shape[d];
        index[d] = 0;
      }
    }
    return result;
  }

  /* Where each place of `shape` is found in an array of shape `from` that is repeated to fill it. */
  function spread(from, shape) {
    const own = strides(from), lacking = shape.length - from.length;
    return places(shape, shape.map((_, d) => d < lacking || from[d - lacking] === 1 ? 0 : own[d - lacking]));
  }

  const values = [];   // {shape, data}, in the order of their numbers
  for (const one of data.constants) values.push({ shape: one.shape, data: cg4ai.array(one) });
  const input = { shape: data.input, data: new Float64Array(size(data.input)) };
  values.push(input);
  const work = [];

  const operand = one => one !== null && typeof one === "object" && "v" in one
    ? values[one.v] : { shape: [], data: Float64Array.of(Number(number(one))) };

  function elementwise(step, of, compute) {
    const shape = step.shape, out = new Float64Array(size(shape)), count = out.length;
    const parts = of.map(operand), a = parts.map(one => one.data);
    if (parts.every(one => one.data.length === count)) {
      if (a.length === 1) work.push(() => { for (let i = 0; i < count; i++) out[i] = compute(a[0][i]); });
      else if (a.length === 2) work.push(() => { for (let i = 0; i < count; i++) out[i] = compute(a[0][i], a[1][i]); });
      else work.push(() => { for (let i = 0; i < count; i++) out[i] = compute(a[0][i], a[1][i], a[2][i]); });
    } else {
      const w = parts.map(one => spread(one.shape, shape));
      if (a.length === 2) work.push(() => { for (let i = 0; i < count; i++) out[i] = compute(a[0][w[0][i]], a[1][w[1][i]]); });
      else work.push(() => { for (let i = 0; i < count; i++) out[i] = compute(...a.map((one, k) => one[w[k][i]])); });
    }
    return { shape, data: out };
  }

  /* A copy in another order; `where` says from which place each number comes. */
  function picked(shape, source, where) {
    const out = new Float64Array(where.length), from = source.data;
    work.push(() => { for (let i = 0; i < where.length; i++) out[i] = from[where[i]]; });
    return { shape, data: out };
  }

  /* Lines along `dims`: where each begins, and where its numbers lie from there. */
  function lines(shape, dims) {
    const own = strides(shape), set = new Set(dims.map(dim => at(dim, shape)));
    const along = shape.map((_, d) => d).filter(d => set.has(d)), others = shape.map((_, d) => d).filter(d => !set.has(d));
    return {
      starts: places(others.map(d => shape[d]), others.map(d => own[d])),
      offsets: places(along.map(d => shape[d]), along.map(d => own[d])),
    };
  }

  const every = (dims, shape) => dims === undefined || dims === null || dims.length === 0
    ? shape.map((_, d) => d) : [dims].flat();

  function reduced(step, dims, first, join, last = (value, count) => value) {
    const source = operand(step.of[0]), { starts, offsets } = lines(source.shape, every(dims, source.shape));
    const out = new Float64Array(size(step.shape)), from = source.data;
    work.push(() => {
      for (let i = 0; i < starts.length; i++) {
        let value = first;
        for (let k = 0; k < offsets.length; k++) value = join(value, from[starts[i] + offsets[k]]);
        out[i] = last(value, offsets.length);
      }
    });
    return { shape: step.shape, data: out };
  }

  function extreme(step, better) {
    const source = operand(step.of[0]), whole = step.of[1] === undefined || step.of[1] === null;
    const { starts, offsets } = lines(source.shape, whole ? every(null, source.shape) : [step.of[1]]);
    const out = new Float64Array(size(step.shape)), from = source.data;
    work.push(() => {
      for (let i = 0; i < starts.length; i++) {
        let best = 0;
        for (let k = 1; k < offsets.length; k++) if (better(from[starts[i] + offsets[k]], from[starts[i] + offsets[best]])) best = k;
        out[i] = best;
      }
    });
    return { shape: step.shape, data: out };
  }

  function softmax(step, logarithm) {
    const source = operand(step.of[0]), { starts, offsets } = lines(source.shape, [step.of[1]]);
    const out = new Float64Array(source.data.length), from = source.data;
    work.push(() => {
      for (let i = 0; i < starts.length; i++) {
        let top = -Infinity, total = 0;
        for (let k = 0; k < offsets.length; k++) top = Math.max(top, from[starts[i] + offsets[k]]);
        for (let k = 0; k < offsets.length; k++) {
          const place = starts[i] + offsets[k];
          out[place] = logarithm ? from[place] - top : Math.exp(from[place] - top);
          total += logarithm ? Math.exp(out[place]) : out[place];
        }
        for (let k = 0; k < offsets.length; k++) {
          const place = starts[i] + offsets[k];
          out[place] = logarithm ? out[place] - Math.log(total) : out[place] / total;
        }
      }
    });
    return { shape: source.shape, data: out };
  }

  /* batches of (n, k) x (k, m), onto `added` where given */
  function product(shape, left, right, added) {
    const n = left.shape.at(-2), k = left.shape.at(-1), m = right.shape.at(-1), count = size(left.shape) / (n * k);
    const out = new Float64Array(size(shape)), a = left.data, b = right.data;
    const start = added && added.data, where = added && spread(added.shape, shape);
    work.push(() => {
      for (let p = 0; p < count; p++) for (let i = 0; i < n; i++) {
        const row = (p * n + i) * m, own = (p * n + i) * k, other = p * k * m;
        if (m === 1) {
          let sum = 0;
          for (let q = 0; q < k; q++) sum += a[own + q] * b[other + q];
          out[row] = sum + (start ? start[where[row]] : 0);
          continue;
        }
        for (let j = 0; j < m; j++) out[row + j] = start ? start[where[row + j]] : 0;
        for (let q = 0; q < k; q++) {
          const factor = a[own + q];
          if (factor !== 0) for (let j = 0; j < m; j++) out[row + j] += factor * b[other + q * m + j];
        }
      }
    });
    return { shape, data: out };
  }

  /* (values, order) of lines sorted along a dimension, as stable as torch's stable sort */
  function sorted(step, dim, descending, count) {
    const source = operand(step.of[0]), { starts, offsets } = lines(source.shape, [dim]);
    const [shape] = step.shape, into = lines(shape, [dim]);
    const out = [0, 1].map(() => ({ shape, data: new Float64Array(size(shape)) })), from = source.data;
    work.push(() => {
      const order = Array.from(offsets, (_, k) => k);
      for (let i = 0; i < starts.length; i++) {
        const value = k => from[starts[i] + offsets[k]];
        order.sort((a, b) => (descending ? value(b) - value(a) : value(a) - value(b)) || a - b);
        for (let k = 0; k < count; k++) {
          const place = into.starts[i] + into.offsets[k];
          out[0].data[place] = value(order[k]);
          out[1].data[place] = order[k];
        }
      }
    });
    return out;
  }

  function gathered(step) {
    const source = operand(step.of[0]), dim = at(step.of[1], source.shape), index = operand(step.of[2]);
    const own = strides(source.shape), base = places(index.shape, own.map((one, d) => d === dim ? 0 : one));
    const out = new Float64Array(base.length), from = source.data, which = index.data;
    work.push(() => { for (let i = 0; i < base.length; i++) out[i] = from[base[i] + which[i] * own[dim]]; });
    return { shape: step.shape, data: out };
  }

  /* Where source[i, j, ...] lies, with arrays for some dimensions, which stand side by side or in
     front: its shape, and a function of the place in it. */
  function chosen(source, indices) {
    const given = indices.map(one => one === null ? null : operand(one)), own = strides(source.shape);
    const dims = given.map((one, d) => one === null ? -1 : d).filter(d => d >= 0);
    const kept = source.shape.map((_, d) => d).filter(d => !dims.includes(d));
    const together = dims.every((d, i) => i === 0 || d === dims[i - 1] + 1), front = together ? dims[0] : 0;
    const rank = Math.max(...dims.map(d => given[d].shape.length)), inner = new Array(rank).fill(1);
    for (const d of dims) given[d].shape.forEach((length, i) => {
      const place = i + rank - given[d].shape.length;
      inner[place] = Math.max(inner[place], length);
    });
    const shape = [...kept.slice(0, front).map(d => source.shape[d]), ...inner, ...kept.slice(front).map(d => source.shape[d])];
    const steps = new Array(shape.length).fill(0);
    kept.forEach((d, i) => { steps[i < front ? i : i + rank] = own[d]; });
    const base = places(shape, steps), inside = strides(inner);
    const which = places(shape, shape.map((_, d) => d >= front && d < front + rank ? inside[d - front] : 0));
    const parts = dims.map(d => ({ data: given[d].data, where: spread(given[d].shape, inner), step: own[d], length: source.shape[d] }));
    const place = i => {
      let result = base[i];
      for (const one of parts) {
        const number = one.data[one.where[which[i]]];
        result += one.step * (number < 0 ? number + one.length : number);
      }
      return result;
    };
    return { shape, place };
  }

  function indexed(step) {
    const source = operand(step.of[0]), { place } = chosen(source, step.of[1]);
    const out = new Float64Array(size(step.shape)), from = source.data;
    work.push(() => { for (let i = 0; i < out.length; i++) out[i] = from[place(i)]; });
    return { shape: step.shape, data: out };
  }

  function put(step) {
    const source = operand(step.of[0]), given = operand(step.of[2]), more = Boolean(step.of[3]);
    const { shape, place } = chosen(source, step.of[1]), where = spread(given.shape, shape), out = new Float64Array(source.data.length);
    work.push(() => {
      out.set(source.data);
      for (let i = 0; i < where.length; i++) out[place(i)] = given.data[where[i]] + (more ? out[place(i)] : 0);
    });
    return { shape: step.shape, data: out };
  }

  const JOINED = { sum: (a, b) => a + b, prod: (a, b) => a * b, amax: Math.max, amin: Math.min };

  function scattered(step) {
    const [target, dimension, index, source, kind] = step.of, base = operand(target), from = operand(source);
    const dim = at(dimension, base.shape), own = strides(base.shape), numbers = operand(index), join = JOINED[kind];
    const where = places(numbers.shape, own.map((one, d) => d === dim ? 0 : one));
    const inside = places(numbers.shape, strides(from.shape)), out = new Float64Array(base.data.length);
    work.push(() => {
      out.set(base.data);
      for (let i = 0; i < where.length; i++) {
        const place = where[i] + numbers.data[i] * own[dim];
        out[place] = join(out[place], from.data[inside[i]]);
      }
    });
    return { shape: step.shape, data: out };
  }

  function added(step) {
    const [target, dimension, index, source] = step.of, base = operand(target), from = operand(source);
    const dim = at(dimension, base.shape), own = strides(base.shape), numbers = operand(index).data;
    const where = places(from.shape, own.map((one, d) => d === dim ? 0 : one));
    const line = places(from.shape, from.shape.map((_, d) => d === dim ? 1 : 0)), out = new Float64Array(base.data.length);
    work.push(() => {
      out.set(base.data);
      for (let i = 0; i < where.length; i++) out[where[i] + numbers[line[i]] * own[dim]] += from.data[i];
    });
    return { shape: step.shape, data: out };
  }

  function joined(step) {
    const parts = step.of[0].map(operand).filter(one => one.data.length), dim = at(step.of[1] || 0, step.shape);
    const own = strides(step.shape), out = new Float64Array(size(step.shape));
    let first = 0;
    const moves = parts.map(one => {
      const where = places(one.shape, own, first * own[dim]);
      first += one.shape[dim];
      return { where, from: one.data };
    });
    work.push(() => { for (const { where, from } of moves) for (let i = 0; i < where.length; i++) out[where[i]] = from[i]; });
    return { shape: step.shape, data: out };
  }

  function padded(step) {
    const source = operand(step.of[0]), pads = step.of[1], own = strides(step.shape);
    const out = new Float64Array(size(step.shape)).fill(Number(number(step.of[2] || 0)));
    let start = 0;
    for (let i = 0; i < pads.length / 2; i++) start += pads[2 * i] * own[step.shape.length - 1 - i];
    const where = places(source.shape, own, start), from = source.data;
    work.push(() => { for (let i = 0; i < where.length; i++) out[where[i]] = from[i]; });
    return { shape: step.shape, data: out };
  }

  function running(step) {
    const source = operand(step.of[0]), { starts, offsets } = lines(source.shape, [step.of[1]]);
    const out = new Float64Array(source.data.length), from = source.data;
    work.push(() => {
      for (let i = 0; i < starts.length; i++) {
        let total = 0;
        for (let k = 0; k < offsets.length; k++) out[starts[i] + offsets[k]] = total += from[starts[i] + offsets[k]];
      }
    });
    return { shape: step.shape, data: out };
  }

  function even(value) {
    const rounded = Math.round(value);
    return Math.abs(value % 1) === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded;
  }

  const ONE = {
    abs: Math.abs, ceil: Math.ceil, cos: Math.cos, exp: Math.exp, floor: Math.floor, log: Math.log,
    log1p: Math.log1p, round: even, sign: Math.sign, sin: Math.sin, sqrt: Math.sqrt, tan: Math.tan, tanh: Math.tanh,
    isinf: x => +(x === Infinity || x === -Infinity), isnan: x => +(x !== x), neg: x => -x, not: x => +(x === 0),
    reciprocal: x => 1 / x, relu: x => x > 0 || x !== x ? x : 0, rsqrt: x => 1 / Math.sqrt(x),
    sigmoid: x => x < 0 ? Math.exp(x) / (1 + Math.exp(x)) : 1 / (1 + Math.exp(-x)),
  };
  const TWO = {
    mul: (a, b) => a * b, pow: Math.pow, maximum: Math.max, minimum: Math.min,
    eq: (a, b) => +(a === b), ne: (a, b) => +(a !== b), lt: (a, b) => +(a < b), le: (a, b) => +(a <= b),
    gt: (a, b) => +(a > b), ge: (a, b) => +(a >= b), and: (a, b) => +(a !== 0 && b !== 0), or: (a, b) => +(a !== 0 || b !== 0),
    remainder: (a, b) => a - b * Math.floor(a / b),
  };
  const ROUNDED = { floor: Math.floor, trunc: Math.trunc };
  const MORE = {
    add: step => { const f = step.with && step.with.alpha || 1; return elementwise(step, step.of.slice(0, 2), (a, b) => a + f * b); },
    sub: step => { const f = step.with && step.with.alpha || 1; return elementwise(step, step.of.slice(0, 2), (a, b) => a - f * b); },
    rsub: step => elementwise(step, step.of.slice(0, 2), (a, b) => b - a),
    div: step => {
      const round = step.with && ROUNDED[step.with.rounding_mode];
      return elementwise(step, step.of.slice(0, 2), round ? (a, b) => round(a / b) : (a, b) => a / b);
    },
    where: step => elementwise(step, step.of, (c, a, b) => c !== 0 ? a : b),
    clamp: step => {
      const named = step.with || {}, bound = (one, other) => one ?? other ?? null;
      const low = bound(step.of[1], named.min), high = bound(step.of[2], named.max);
      return elementwise(step, [step.of[0], low ?? -Infinity, high ?? Infinity], (x, a, b) => x < a ? Math.min(a, b) : x > b ? b : x);
    },
    mm: step => product(step.shape, operand(step.of[0]), operand(step.of[1])),
    bmm: step => product(step.shape, operand(step.of[0]), operand(step.of[1])),
    addmm: step => product(step.shape, operand(step.of[1]), operand(step.of[2]), operand(step.of[0])),
    softmax: step => softmax(step, false),
    log_softmax: step => softmax(step, true),
    sum: step => reduced(step, step.of[1], 0, JOINED.sum),
    prod: step => reduced(step, step.of[1], 1, JOINED.prod),
    mean: step => reduced(step, step.of[1], 0, JOINED.sum, (value, count) => value / count),
    amax: step => reduced(step, step.of[1], -Infinity, Math.max),
    amin: step => reduced(step, step.of[1], Infinity, Math.min),
    any: step => reduced(step, step.of[1], 0, (a, b) => +(a !== 0 || b !== 0)),
    all: step => reduced(step, step.of[1], 1, (a, b) => +(a !== 0 && b !== 0)),
    argmax: step => extreme(step, (a, b) => a > b),
    argmin: step => extreme(step, (a, b) => a < b),
    same: step => ({ shape: step.shape, data: operand(step.of[0]).data }),
    permute: step => { const s = operand(step.of[0]), own = strides(s.shape); return picked(step.shape, s, places(step.shape, step.of[1].map(d => own[at(d, s.shape)]))); },
    expand: step => { const s = operand(step.of[0]); return picked(step.shape, s, spread(s.shape, step.shape)); },
    select: step => {
      const s = operand(step.of[0]), own = strides(s.shape), dim = at(step.of[1], s.shape), which = step.of[2];
      const place = which < 0 ? which + s.shape[dim] : which;
      return picked(step.shape, s, places(step.shape, own.filter((_, d) => d !== dim), place * own[dim]));
    },
    slice: step => {
      const s = operand(step.of[0]), own = strides(s.shape), dim = at(step.of[1] || 0, s.shape), by = step.of[4] || 1;
      let first = step.of[2] || 0;
      first = Math.min(first < 0 ? Math.max(0, first + s.shape[dim]) : first, s.shape[dim]);
      return picked(step.shape, s, places(step.shape, own.map((one, d) => d === dim ? one * by : one), first * own[dim]));
    },
    flip: step => {
      const s = operand(step.of[0]), own = strides(s.shape), turned = new Set(step.of[1].map(d => at(d, s.shape)));
      const start = own.reduce((sum, one, d) => turned.has(d) ? sum + one * (s.shape[d] - 1) : sum, 0);
      return picked(step.shape, s, places(step.shape, own.map((one, d) => turned.has(d) ? -one : one), start));
    },
    index_select: step => {
      const s = operand(step.of[0]), own = strides(s.shape), dim = at(step.of[1], s.shape), which = operand(step.of[2]).data;
      const base = places(step.shape, own.map((one, d) => d === dim ? 0 : one)), line = places(step.shape, own.map((_, d) => d === dim ? 1 : 0));
      const out = new Float64Array(base.length), from = s.data;
      work.push(() => { for (let i = 0; i < base.length; i++) out[i] = from[base[i] + which[line[i]] * own[dim]]; });
      return { shape: step.shape, data: out };
    },
    gather: gathered, index: indexed, index_put: put, scatter_reduce: scattered, index_add: added, cat: joined,
    constant_pad_nd: padded, cumsum: running,
    sort: step => sorted(step, step.of[1] ?? -1, Boolean(step.of[2]), operand(step.of[0]).shape[at(step.of[1] ?? -1, operand(step.of[0]).shape)]),
    topk: step => sorted(step, step.of[2] ?? -1, step.of[3] ?? true, step.of[1]),
    split_with_sizes: step => {
      const s = operand(step.of[0]), own = strides(s.shape), dim = at(step.of[2] || 0, s.shape);
      let first = 0;
      return step.shape.map((shape, i) => {
        const part = picked(shape, s, places(shape, own, first * own[dim]));
        first += step.of[1][i];
        return part;
      });
    },
    getitem: step => values[step.of[0].v][step.of[1]],
  };

  for (const step of data.steps) {
    if (step.do in ONE) values.push(elementwise(step, step.of.slice(0, 1), ONE[step.do]));
    else if (step.do in TWO) values.push(elementwise(step, step.of.slice(0, 2), TWO[step.do]));
    else values.push(MORE[step.do](step));
  }
  const outputs = data.outputs.map(one => values[one]);

  return function (inputs) {
    input.data.set(inputs);
    for (const one of work) one();
    return outputs.map(one => one.data);
  };
};
if (typeof module !== "undefined") module.exports = cg4ai;
