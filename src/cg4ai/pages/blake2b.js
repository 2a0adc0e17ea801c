/* The number in [0, 1) that decides by shares of votes: cg4ai.members.draws in a page (RFC 7693). */
"use strict";
(globalThis.cg4ai || (globalThis.cg4ai = {})).draw = (function () {
  const MASK = (1n << 64n) - 1n;
  const START = [
    0x6a09e667f3bcc908n, 0xbb67ae8584caa73bn, 0x3c6ef372fe94f82bn, 0xa54ff53a5f1d36f1n,
    0x510e527fade682d1n, 0x9b05688c2b3e6c1fn, 0x1f83d9abfb41bd6bn, 0x5be0cd19137e2179n,
  ];
  const SIGMA = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4], [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13], [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11], [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5], [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
  ];
  const LINES = [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15], [0, 5, 10, 15], [1, 6, 11, 12], [2, 7, 8, 13], [3, 4, 9, 14]];
  const turned = (x, by) => ((x >> BigInt(by)) | (x << BigInt(64 - by))) & MASK;

  function compressed(state, block, length, last) {
    const v = [...state, ...START], m = new BigUint64Array(block.buffer, block.byteOffset, 16);
    v[12] ^= BigInt(length);
    if (last) v[14] ^= MASK;
    for (let round = 0; round < 12; round++) LINES.forEach(([a, b, c, d], i) => {
      const order = SIGMA[round % 10];
      v[a] = (v[a] + v[b] + m[order[2 * i]]) & MASK; v[d] = turned(v[d] ^ v[a], 32);
      v[c] = (v[c] + v[d]) & MASK; v[b] = turned(v[b] ^ v[c], 24);
      v[a] = (v[a] + v[b] + m[order[2 * i + 1]]) & MASK; v[d] = turned(v[d] ^ v[a], 16);
      v[c] = (v[c] + v[d]) & MASK; v[b] = turned(v[b] ^ v[c], 63);
    });
    return state.map((one, i) => one ^ v[i] ^ v[i + 8]);
  }

  /* inputs: numbers; seed: a whole number as text, for those beyond 2**53 */
  return function (inputs, seed) {
    const data = new Uint8Array(Float64Array.from(inputs, x => x + 0).buffer), key = new Uint8Array(128);
    new DataView(key.buffer).setBigUint64(0, BigInt(seed), true);
    const blocks = [key];
    for (let start = 0; start < data.length; start += 128) {
      const block = new Uint8Array(128);
      block.set(data.subarray(start, start + 128));
      blocks.push(block);
    }
    let state = [...START];
    state[0] ^= 0x01010000n ^ (8n << 8n) ^ 8n;   // a key and a digest of 8 bytes each
    blocks.forEach((block, i) => {
      const last = i === blocks.length - 1;
      state = compressed(state, block, last ? 128 + data.length : 128 * (i + 1), last);
    });
    return Number(state[0] >> 11n) / 2 ** 53;
  };
})();
if (typeof module !== "undefined") module.exports = globalThis.cg4ai;
