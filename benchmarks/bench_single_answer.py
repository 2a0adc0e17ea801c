"""Milliseconds per single answer of a router, against one warm-started solve of its linear program.

    python -m benchmarks.bench_single_answer [NETWORK-D ...] [--vectors 1000] [--steps 200]
    python -m benchmarks.bench_single_answer abilene-56-certified abilene-56-source --onnx

Each router is trained for a few steps only, in the usual shape: that decides how near the optimum
it is, and not how long it takes. `-certified` and `-source` ask for that guarantee or scope of
agents. At each of fresh demand vectors all ways take turns, in one process and one thread:

- batch: the mixture's outputs by torch for one row, what `predict` did before it had another way,
- predict: `ensemble.predict`,
- JSON: the body of a request to the text of its answer, as the worker of `cg4ai serve` does it,
- served: the same through event loop and thread, without a network (`--served`),
- agent: `policy.shares` of the exported file of the node with most paths (`-source`),
- onnx: the exported model in ONNX Runtime (`--onnx`),
- LP: HiGHS from the basis of the vector before, where only right-hand sides change; the splits are
  not read, nor are demands scaled,
- LP JSON: as JSON, but that the program is solved and its splits are read in place of the router.

`--fallback GAP` also answers with a fallback, and says how often it improves or solves: of routers
that were hardly trained too often, so give `--steps 0` for the usual training. Then there are

- fallback: `ensemble.predict`, the proven gap, and what the fallback does about it,
- fallback JSON: as JSON, with it.

`--outside SHARE` takes so many of the vectors times two, which lie outside the set: the program is
solved for each of them. Beside medians there are means, into which rare slow answers count; on a
busy machine those of `--processor`, which takes seconds of the processor for those of the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cg4ai.apps.predictions import PredictionOptions, Predictions, RunPredictor
from cg4ai.cli.main import main as cg4ai
from cg4ai.data import Array
from cg4ai.report.tables import format_markdown, json_text
from cg4ai.routing.operate import policy
from cg4ai.routing.operate.export import export_agents
from cg4ai.routing.train.optimal import _Flows, _split_of, scale_vectors
from cg4ai.serve.limits import ServeLimits
from cg4ai.serve.messages import question_of
from cg4ai.serve.service import Service

CASES = (
    *("abilene-5", "abilene-15", "abilene-56", "abilene-132", "geant-200", "geant-462"),
    *("germany50-662", "abilene-15-certified", "abilene-56-certified"),
    *("abilene-15-source", "abilene-132-source"),
)
KINDS = {"certified": ("--guarantee", "certified"), "source": ("--agent-scope", "source")}
SHORT = {"batch_size": 64, "scenarios": 50, "priced": 200, "validation": 100}
LIMITS = ServeLimits(body_mib=16)
WARM = 20  # answers before any is timed
Way = Callable[[int], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--vectors", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=200, help="of training; 0: the usual")
    parser.add_argument("--time-limit", type=float, default=120.0, help="of training, in seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fallback", type=float, default=None)
    parser.add_argument("--outside", type=float, default=0.0, help="share of vectors outside")
    parser.add_argument("--processor", action="store_true", help="time the processor alone")
    parser.add_argument("--onnx", action="store_true")
    parser.add_argument("--served", action="store_true")
    parser.add_argument("--runs", type=Path, help="where routers are kept, and taken from")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for case in given.cases:
        with tempfile.TemporaryDirectory() as folder:
            run = (given.runs or Path(folder)) / case
            if not (run / "ensemble.json").exists():
                train(case, run, given)
            rows.append({"case": case, **measured(run, Path(folder) / "more", given)})
        print(rows[-1], flush=True)
    print(format_markdown([{name: row.get(name) for name in all_names(rows)} for row in rows]))
    pairs = [("predict", "LP"), ("agent", "LP"), ("JSON", "LP JSON"), ("JSON", "LP")]
    for way, other in (*pairs, ("fallback", "LP"), ("fallback JSON", "LP JSON")):
        known = [row[f"{other} ms"] / row[f"{way} ms"] for row in rows if f"{way} ms" in row]
        if known:
            faster = f"{sum(times > 1 for times in known)} of {len(known)}"
            print(f"{way} against {other}: faster in {faster}, {min(known):.2f} times at least")


def all_names(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def train(case: str, folder: Path, given: argparse.Namespace) -> None:
    """A run of `cg4ai route`, of few steps."""
    network, demands, *kind = case.split("-")
    few = SHORT | {"first_steps": given.steps, "later_steps": given.steps // 2}
    sets = [f"{name}={value}" for name, value in few.items()] if given.steps else []
    options = [part for one in sets for part in ("--set", one)]
    options += [part for one in kind for part in KINDS[one]]
    limit = ("--time-limit", str(given.time_limit)) if given.steps else ()
    asked = ["route", network, "--demands", demands, "--out", str(folder), "--quiet"]
    code = cg4ai([*asked, "--threads", "1", *limit, *options])
    if not (folder / "ensemble.json").exists():
        raise SystemExit(f"{case} was not trained: exit code {code}")


def measured(run: Path, more: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Median, 10th and 99th percentile of each way, in ms: the 10th is hardly disturbed."""
    predictor = RunPredictor.from_folder(run)
    router: Any = predictor.described
    ensemble, made = predictor.ensemble, router.instance
    vectors = made.sample(WARM + given.vectors, given.seed + 1)
    chosen = np.random.default_rng(given.seed).uniform(size=len(vectors)) < given.outside
    vectors[chosen] *= 2
    bodies = [body(made.demand_names, vector) for vector in vectors]
    program, shares = _Flows(made), scale_vectors(made, vectors)[0]
    other, paths = _Flows(made), (router.paths, json_text(router.paths))
    singles, tensors = vectors[:, None], torch.as_tensor(vectors)[:, None]

    plain = PredictionOptions(fallback=None)

    def as_json(number: int, asked: PredictionOptions = plain) -> str:
        question = question_of(bodies[number], LIMITS, explain=False)
        found = predictor.predict(question.table, asked, count_moved=True)
        return found.as_json("model")

    def fall_back(number: int) -> Any:
        own = ensemble.predict(singles[number], outside="ignore")
        return router.improve_answers(singles[number], own, fallback=given.fallback)

    def program_as_json(number: int) -> str:
        x = router.inputs(question_of(bodies[number], LIMITS, explain=False).table)
        own = scale_vectors(made, x)[0][0]
        other.solve(own)
        splits = _split_of(made, own, other.get_flows())[0]
        rows = router.predictions(x, splits[None], details=False)
        return Predictions(rows, router.outside(x), "", 0, "", *paths).as_json("model")

    def batch(number: int) -> None:
        with torch.no_grad():
            ensemble.outputs(tensors[number])

    with served(run, bodies) as serve:
        ways: dict[str, Way] = {
            "batch": batch,
            "predict": lambda number: ensemble.predict(singles[number], outside="ignore"),
            "JSON": as_json,
            "LP": lambda number: program.solve(shares[number]),
            "LP JSON": program_as_json,
        }
        if given.served:
            ways["served"] = serve
        if router.agents:
            ways["agent"] = agent(more, made, ensemble, vectors)
        if given.onnx:
            ways["onnx"] = onnx(more.with_suffix(".onnx"), ensemble, singles)
        if given.fallback is not None and not router.agents:
            asked = PredictionOptions(fallback=given.fallback)
            ways["fallback"] = fall_back
            ways["fallback JSON"] = lambda number: as_json(number, asked)
        clock = time.process_time if given.processor else time.perf_counter
        seconds = take_turns(ways, len(vectors), clock)
    found = ensemble.evaluate(vectors)
    alone = np.concatenate([ensemble.predict(one, outside="ignore") for one in singles])
    result: dict[str, Any] = {
        "members": len(ensemble),
        "moved": float((found.theta > 0).mean()),
        "singly": ensemble.answers_singly,
        "differs": float(np.abs(alone - found.outputs).max()),
    }
    for name, own in seconds.items():
        result[f"{name} ms"] = float(np.median(own)) * 1e3
        result[f"{name} mean"] = float(np.mean(own)) * 1e3
        result[f"{name} 10 %"] = float(np.quantile(own, 0.1)) * 1e3
        result[f"{name} 99 %"] = float(np.quantile(own, 0.99)) * 1e3
    if "fallback" in ways:
        answers = router.improve_answers(vectors, alone, fallback=given.fallback)
        result["improved"] = float(answers.improved[WARM:].mean())
        result["solved"] = float(answers.solved[WARM:].mean())
    return result


def take_turns(ways: dict[str, Way], count: int, clock: Callable[[], float]) -> dict[str, Array]:
    """Seconds (count - WARM,) of each way, one vector after the other."""
    seconds = {name: np.empty(count) for name in ways}
    for number in range(count):
        for name, way in ways.items():
            started = clock()
            way(number)
            seconds[name][number] = clock() - started
    return {name: own[WARM:] for name, own in seconds.items()}


def body(names: list[str], vector: Array) -> bytes:
    return json.dumps({"rows": [dict(zip(names, vector.tolist(), strict=True))]}).encode()


@contextmanager
def served(folder: Path, bodies: list[bytes]) -> Iterator[Way]:
    """What answers a body as a request is answered; the event loop stays between calls."""
    service, loop = Service(folder, LIMITS), asyncio.new_event_loop()

    async def sent(content: bytes) -> Any:
        yield content

    try:
        yield lambda number: loop.run_until_complete(service.answer(sent(bodies[number])))
    finally:
        service.close()
        loop.close()


def agent(folder: Path, made: Any, ensemble: Any, vectors: Array) -> Way:
    """The answers of the node with most paths, from its exported file."""
    files = export_agents(made, ensemble, folder).files
    largest = max((policy.load(file) for file in files), key=lambda one: len(one["paths"]))
    own = [made.demand_names.index(name) for name in largest["demands"]]
    known = vectors[:, None, own]
    return lambda number: policy.shares(largest, known[number])


def onnx(path: Path, ensemble: Any, singles: Array) -> Way:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(ensemble.export_onnx(path)), options)
    return lambda number: session.run(None, {"inputs": singles[number]})


if __name__ == "__main__":
    main()
