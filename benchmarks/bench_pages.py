"""Pages of `cg4ai explore` in a browser: agreement with Python, slider to paint, size.

    python -m benchmarks.bench_pages RUN [RUN ...] [--pictures DIR]

For each run of `cg4ai route`: the page is made, opened in a headless Chromium, asked for the splits
of 1,000 random demand vectors, and a slider is moved 60 times; from the event to the frame in which
all is painted, and of that the computing alone. With `--pictures` screens are kept: light and dark,
wide and narrow. Needs selenium and Debian's chromium and chromium-driver.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai.apps.explorer import write_explorer
from cg4ai.apps.folders import load_trained
from cg4ai.routing.network.description import Router

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from browser import chromium, emulate

VECTORS, MOVES = 1000, 60
MOVED = """
const done = arguments[1], range = document.querySelector("#demands input[type=range]");
const taken = [], computed = [];
function once(i) {
  if (i === arguments_count) return done([taken, computed]);
  range.value = range.max * ((i * 7) % 10 + 0.5) / 10;
  const started = performance.now();
  range.dispatchEvent(new Event("input", { bubbles: true }));
  const there = performance.now();
  requestAnimationFrame(() => {
    const channel = new MessageChannel();   // answered once the frame is painted
    channel.port1.onmessage = () => {
      taken.push(performance.now() - started);
      computed.push(there - started);
      once(i + 1);
    };
    channel.port2.postMessage(0);
  });
}
const arguments_count = arguments[0];
once(0);
"""
ANSWERS = "return arguments[0].map(one => Array.from(explorer.answer(one, 0).splits));"


def measured(browser: Any, run: Path, page: Path) -> dict[str, Any]:
    """One run: the figures of its page."""
    began = time.perf_counter()
    size = write_explorer(run, page, most_mb=100.0)
    making = time.perf_counter() - began
    ensemble, described = load_trained(run)
    assert isinstance(described, Router)
    made = described.instance
    vectors = np.random.default_rng(0).uniform(size=(VECTORS, len(made.demand_max)))
    vectors = vectors * made.demand_max
    browser.set_script_timeout(300)
    browser.get(page.as_uri())
    found: list[Any] = []
    for part in np.array_split(vectors, max(1, vectors.size // 100_000)):
        found += browser.execute_script(ANSWERS, part.tolist())
    apart = np.abs(np.array(found) - ensemble.predict(vectors, outside="ignore")).max()
    taken, computed = browser.execute_async_script(MOVED, MOVES)
    return {
        "run": run.name,
        "demands": len(made.demand_max),
        "paths": len(made.path_demand),
        "MB": f"{size:.2f}",
        "making s": f"{making:.1f}",
        "largest difference": f"{apart:.1e}",
        "slider to paint, median ms": f"{np.median(taken):.1f}",
        "99th percentile ms": f"{np.percentile(taken, 99):.1f}",
        "of that computing ms": f"{np.median(computed):.1f}",
    }


def pictures(page: Path, folder: Path, name: str) -> None:
    """Light and dark, wide and narrow."""
    folder.mkdir(parents=True, exist_ok=True)
    for dark in (False, True):
        for width in (1300, 420):
            with chromium(width, 950) as browser:
                emulate(browser, dark=dark, width=width if width < 500 else None)
                browser.get(page.as_uri())
                theme, form = ("dark" if dark else "light"), ("wide" if width > 500 else "narrow")
                browser.save_screenshot(str(folder / f"{name}-{theme}-{form}.png"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--pictures", type=Path)
    asked = parser.parse_args()
    rows = []
    for run in asked.runs:
        page = run / "explorer.html"
        with chromium() as browser:
            rows.append(measured(browser, run, page))
        if asked.pictures:
            pictures(page, asked.pictures, run.name)
        if len(rows) == 1:
            print(f"| {' | '.join(rows[0])} |")
            print(f"| {' | '.join('---' for _ in rows[0])} |")
        print(f"| {' | '.join(str(value) for value in rows[-1].values())} |", flush=True)


if __name__ == "__main__":
    main()
