/* The best routing of given demands over given paths, between two proven ends. */
"use strict";
globalThis.cg4ai = globalThis.cg4ai || {};
(function () {
  const ENOUGH = 1e-3;            // how far apart the ends may be, as a share
  const ROUNDS = 4000, WORK = 3e7;    // at most; numbers that all rounds together touch
  const STEP = 2, LOOK = 10, SHRUNK = 0.4, STALE = 800;   // rounds without a new start after which steps are halved
  const LEAST = -30;              // of logarithms of shares and prices, from which they can return

  /* Bounds { lower, upper } of the least MLU of demands (D) over paths [{ demand, arcs }].

     Shares of demands play against prices of links, both by multiplicative weights that look one
     step ahead; now and then they start again from their averages. Whatever is met, the fullest
     link under some shares is not below the optimum, and what demands pay on their cheapest paths
     at prices that sum to one is not above it: the ends hold in any round. */
  cg4ai.bestRouting = function (paths, demands, capacity) {
    const blocks = new Map();
    paths.forEach((path, p) => {
      if (demands[path.demand] > 0) blocks.set(path.demand, [...blocks.get(path.demand) || [], p]);
    });
    if (!blocks.size) return { lower: 0, upper: 0 };
    const groups = [...blocks.values()], many = capacity.length;

    function loadsOf(shares) {
      const loads = new Float64Array(many);
      for (const group of groups) for (const p of group) {
        const flow = demands[paths[p].demand] * shares[p];
        for (const arc of paths[p].arcs) loads[arc] += flow / capacity[arc];
      }
      return loads;
    }

    function costsOf(prices) {
      const costs = new Float64Array(paths.length);
      for (const group of groups) for (const p of group) {
        for (const arc of paths[p].arcs) costs[p] += prices[arc] / capacity[arc];
        costs[p] *= demands[paths[p].demand];
      }
      return costs;
    }

    const cheapest = costs => groups.reduce((sum, group) => sum + Math.min(...group.map(p => costs[p])), 0);
    const largest = loads => loads.reduce((a, b) => Math.max(a, b), 0);

    /* Logarithms to numbers that sum to one, over these places. */
    function normalise(logs, numbers, places) {
      let most = -Infinity, sum = 0;
      for (const i of places) most = Math.max(most, logs[i]);
      for (const i of places) sum += numbers[i] = Math.exp(logs[i] - most);
      for (const i of places) { numbers[i] /= sum; logs[i] = Math.max(LEAST, logs[i] - most - Math.log(sum)); }
    }

    const links = Array.from(capacity, (_, a) => a);
    let shares = new Float64Array(paths.length), prices = new Float64Array(many).fill(1 / many);
    for (const group of groups) for (const p of group) shares[p] = 1 / group.length;
    let logShares, logPrices, costs, loads, lastCosts, lastLoads, sumShares, sumPrices, count, started = Infinity;
    let lower = 0, upper = Infinity, step = STEP;

    function start() {
      [logShares, logPrices] = [shares, prices].map(one => one.map(value => Math.max(LEAST, Math.log(value))));
      costs = lastCosts = costsOf(prices);
      loads = lastLoads = loadsOf(shares);
      [sumShares, sumPrices, count] = [new Float64Array(paths.length), new Float64Array(many), 0];
    }

    /* The ends by these shares and prices; how far they are apart. */
    function judge(itsLoads, itsCosts) {
      const [high, low] = [largest(itsLoads), cheapest(itsCosts)];
      [upper, lower] = [Math.min(upper, high), Math.max(lower, low)];
      return high / low - 1;
    }

    start();
    const touched = groups.reduce((sum, group) => sum + group.reduce((all, p) => all + paths[p].arcs.length, 0), many);
    const rounds = Math.min(ROUNDS, Math.ceil(WORK / (2 * touched)));
    judge(loads, costs);
    for (let round = 1; round <= rounds && upper > (1 + ENOUGH) * lower; round++) {
      for (const group of groups) {
        for (const p of group) logShares[p] -= step * (2 * costs[p] - lastCosts[p]) / upper;
        normalise(logShares, shares, group);
      }
      for (const a of links) logPrices[a] += step * (2 * loads[a] - lastLoads[a]) / upper;
      normalise(logPrices, prices, links);
      [lastCosts, lastLoads, costs, loads] = [costs, loads, costsOf(prices), loadsOf(shares)];
      count += 1;
      for (let p = 0; p < shares.length; p++) sumShares[p] += shares[p];
      for (const a of links) sumPrices[a] += prices[a];
      if (round % LOOK) continue;
      judge(loads, costs);
      const [meanShares, meanPrices] = [sumShares, sumPrices].map(sums => sums.map(value => value / count));
      const apart = judge(loadsOf(meanShares), costsOf(meanPrices));
      if (started === Infinity) started = apart;
      const stale = count >= STALE && apart > 0.5 * started;
      if (stale || count >= 4 * LOOK && apart < SHRUNK * started) {
        if (stale) step /= 2;
        [started, shares, prices] = [apart, meanShares, meanPrices];
        start();
      }
    }
    return { lower, upper };
  };
})();
