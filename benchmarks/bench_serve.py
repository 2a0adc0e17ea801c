"""How a served run holds up: latency, requests per second, refusals and memory over a soak.

    python benchmarks/bench_serve.py RUN [--seconds 300] [--clients 4] [--out FILE.md]

Starts `cg4ai serve RUN` as a process of its own and loads it in three phases, each a share of the
time: one client with 1 row per request, one client with 1,000 rows, and then the soak: several
clients with both, every tenth request bad (no JSON, a missing column, text for a number, too many
rows, an unknown path), and the run reloaded every few seconds. Every request is counted by its
code; one that got no answer is lost. Memory is the server's resident set, and its slope that of a
line through the second half of the soak. Clients and server share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from cg4ai.report.tables import format_markdown

MANY = 1000
MOST_ROWS = 10_000  # that a server takes unless told otherwise
SHARES = {"1 row": 0.15, "1,000 rows": 0.15, "soak": 0.7}
BAD_SHARE, MANY_SHARE = 0.1, 0.05  # of the requests of the soak
RELOAD_S, MEMORY_S = 5.0, 0.5
LOST = "lost"
MIB = 2**20


@dataclass
class Phase:
    """What was asked in one phase, and what came back: seconds of good requests, all codes."""

    name: str
    seconds: float = 0.0
    latencies: dict[int, list[float]] = field(default_factory=dict)
    codes: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[float, float]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, rows: int, code: str, seconds: float) -> None:
        with self.lock:
            self.codes[code] += 1
            if code == "200" and rows:
                self.latencies.setdefault(rows, []).append(seconds)


@contextmanager
def server(run: Path) -> Iterator[tuple[str, psutil.Process]]:
    """The address of a server of its own, and its process."""
    command = [sys.executable, "-m", "cg4ai", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://\S+", line)
            if found is None:
                raise SystemExit("the server did not start")
            print(line.strip(), file=sys.stderr)
            yield found[0], psutil.Process(process.pid)
        finally:
            process.terminate()


def rows_of(address: str, count: int) -> bytes:
    """A body with rows inside the region: the example of the server, shrunk at random."""
    example: dict[str, Any] = httpx.get(f"{address}/example").json()["rows"][0]
    made = random.Random(0)
    rows = [
        {
            name: value * made.uniform(0.9, 1.0) if isinstance(value, float) else value
            for name, value in example.items()
        }
        for _ in range(count)
    ]
    return json.dumps({"rows": rows}).encode()


def bad_requests(address: str) -> list[tuple[str, bytes, str]]:
    """Path, body and the code that each must get."""
    example = httpx.get(f"{address}/example").json()["rows"][0]
    name = next(iter(example))
    lacking = {key: value for key, value in example.items() if key != name}
    return [
        ("/predict", b"{", "422"),
        ("/predict", b'{"rows": []}', "422"),
        ("/predict", json.dumps({"rows": [lacking or {"x": 1}]}).encode(), "422"),
        ("/explain", json.dumps({"rows": [{**example, name: "x"}]}).encode(), "422"),
        ("/predict", json.dumps({"rows": [{"x": 1}] * (MOST_ROWS + 1)}).encode(), "413"),
        ("/absent", b"", "404"),
    ]


def ask(client: httpx.Client, phase: Phase, path: str, body: bytes, rows: int) -> str:
    """One request; returns its code."""
    started = time.perf_counter()
    try:
        code = str(client.post(path, content=body).status_code)
    except httpx.HTTPError:
        code = LOST
    phase.note(rows, code, time.perf_counter() - started)
    return code


def caller(address: str, phase: Phase, bodies: dict[int, bytes]) -> Callable[[float], None]:
    """A client that asks for these bodies without a pause, until a moment."""

    def run(until: float) -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            while time.perf_counter() < until:
                for rows, body in bodies.items():
                    ask(client, phase, "/predict", body, rows)

    return run


def mixed(
    address: str, phase: Phase, bodies: dict[int, bytes], seed: int
) -> Callable[[float], None]:
    """A client that asks for one row mostly, for many at times, and badly now and then."""
    bad, chance = bad_requests(address), random.Random(seed)

    def run(until: float) -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            while time.perf_counter() < until:
                kind = chance.random()
                if kind < BAD_SHARE:
                    path, body, code = chance.choice(bad)
                    if ask(client, phase, path, body, 0) != code:
                        print(f"{path} {body[:80]!r} did not get {code}", file=sys.stderr)
                    continue
                rows = MANY if kind < BAD_SHARE + MANY_SHARE else 1
                path = "/explain" if chance.random() < BAD_SHARE else "/predict"
                ask(client, phase, path, bodies[rows], rows if path == "/predict" else 0)

    return run


def reloader(address: str, phase: Phase) -> Callable[[float], None]:
    """Has the run loaded anew every few seconds."""

    def run(until: float) -> None:
        with httpx.Client(base_url=address, timeout=60) as client:
            while time.perf_counter() + RELOAD_S < until:
                time.sleep(RELOAD_S)
                ask(client, phase, "/reload", b"", 0)

    return run


def measured(
    phase: Phase, seconds: float, process: psutil.Process, *work: Callable[[float], None]
) -> Phase:
    """The phase after all have worked for so long."""
    started = time.perf_counter()
    until = started + seconds
    threads = [threading.Thread(target=one, args=(until,)) for one in work]
    for thread in threads:
        thread.start()
    while time.perf_counter() < until:
        phase.memory.append((time.perf_counter() - started, process.memory_info().rss / MIB))
        time.sleep(min(MEMORY_S, max(0.0, until - time.perf_counter())))
    for thread in threads:
        thread.join()
    phase.seconds = time.perf_counter() - started
    return phase


def slope(memory: list[tuple[float, float]]) -> float:
    """MiB per minute over the second half: what was to be loaded once is there by then."""
    late = np.array(memory[len(memory) // 2 :])
    return float(60 * np.polyfit(late[:, 0], late[:, 1], 1)[0]) if len(late) > 2 else float("nan")


def table(phases: list[Phase]) -> str:
    lines = []
    for phase in phases:
        for rows, latencies in sorted(phase.latencies.items()):
            p50, p99 = np.percentile(latencies, [50, 99])
            lines.append(
                {
                    "phase": phase.name,
                    "rows per request": rows,
                    "requests": len(latencies),
                    "median ms": round(1000 * p50, 2),
                    "99th percentile ms": round(1000 * p99, 2),
                    "requests/s": round(len(latencies) / phase.seconds, 1),
                    "rows/s": round(rows * len(latencies) / phase.seconds),
                }
            )
    return format_markdown(lines)


def report(phases: list[Phase], run: Path, clients: int) -> str:
    codes = sum((phase.codes for phase in phases), Counter[str]())
    counted = ", ".join(f"{code}: {count}" for code, count in sorted(codes.items()))
    soak = phases[-1]
    first, last = soak.memory[0][1], soak.memory[-1][1]
    total = sum(soak.codes.values())
    return "\n".join(
        [
            table(phases),
            f"Run: {run.name}; {os.cpu_count()} cores, which clients and server share. {clients} "
            f"clients in the soak of {soak.seconds:.0f} s: {total / soak.seconds:.0f} requests/s.",
            f"Answers by code: {counted}; lost: {codes[LOST]}.",
            f"Memory of the server: {first:.0f} MiB when the soak began, {last:.0f} MiB at the "
            f"end; slope over its second half {slope(soak.memory):+.2f} MiB/min.",
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="folder that train, route or digits wrote")
    parser.add_argument("--seconds", type=float, default=300.0, help="for all phases together")
    parser.add_argument("--clients", type=int, default=4, help="at once, in the soak")
    parser.add_argument("--out", type=Path, help="write the report here, too")
    asked = parser.parse_args()
    with server(asked.run) as (address, process):
        bodies = {rows: rows_of(address, rows) for rows in (1, MANY)}
        one, many, soak = (Phase(name) for name in SHARES)
        phases = [
            measured(
                phase,
                asked.seconds * SHARES[phase.name],
                process,
                caller(address, phase, {rows: bodies[rows]}),
            )
            for phase, rows in ((one, 1), (many, MANY))
        ]
        callers = [mixed(address, soak, bodies, seed) for seed in range(asked.clients)]
        length = asked.seconds * SHARES[soak.name]
        phases.append(measured(soak, length, process, *callers, reloader(address, soak)))
    text = report(phases, asked.run, asked.clients)
    print(text)
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")
    codes = sum((phase.codes for phase in phases), Counter[str]())
    return 1 if codes["500"] or codes[LOST] else 0


if __name__ == "__main__":
    sys.exit(main())
