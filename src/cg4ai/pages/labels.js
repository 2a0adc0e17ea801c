/* Which texts of a crowded picture are written, and where; boxes are [left, top, width, height]. */
"use strict";
globalThis.cg4ai = globalThis.cg4ai || {};
(function () {
  const meet = (a, b) => a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3];

  /* For each list of boxes, the most important list first, the number of the first box that meets
     none of those taken; -1 where all do. What is chosen is taken, too. */
  cg4ai.placeLabels = function (wanted, taken) {
    return wanted.map(boxes => {
      const spot = boxes.findIndex(box => !taken.some(other => meet(box, other)));
      if (spot >= 0) taken.push(boxes[spot]);
      return spot;
    });
  };

  /* Whether a line [x1, y1, x2, y2] runs through a box: by cutting off what lies beyond each side. */
  cg4ai.crosses = function ([x1, y1, x2, y2], [left, top, width, height]) {
    let from = 0, to = 1;
    for (const [start, way, low, high] of [[x1, x2 - x1, left, left + width], [y1, y2 - y1, top, top + height]]) {
      if (way === 0) {
        if (start < low || start > high) return false;
        continue;
      }
      const a = (low - start) / way, b = (high - start) / way;
      from = Math.max(from, Math.min(a, b));
      to = Math.min(to, Math.max(a, b));
    }
    return from <= to;
  };
})();
