"""Do two source trees reach the same bits? The same short runs by each, compared.

    git worktree add --detach /somewhere/base COMMIT
    python benchmarks/before_after.py record /somewhere/base --out golden/base
    python benchmarks/before_after.py record . --out golden/mine
    python benchmarks/before_after.py compare golden/base golden/mine

`record` runs five routers, four fits and two classifiers of digits by the code of a tree, each in
a process of its own with one thread and a fixed seed. It keeps their folders and writes
golden.json: digests of members, weights and predictions, and the figures of each summary but times.
`compare` prints a row per run and the figures side by side, and exits with 1 where bits differ.

Bits are the same on one machine only, with the same libraries. Across machines, compare figures.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]

ROUTE_SETS = (
    *("scenarios=60", "priced=200", "first_steps=200", "later_steps=100", "batch_size=64"),
    *("rounds=3", "validation=200"),
)
DIGITS_SETS = ("group=12", "steps=150", "learning_rate=0.02", "batch_size=32", "rounds=2")


def sets(pairs: tuple[str, ...]) -> list[str]:
    return [part for pair in pairs for part in ("--set", pair)]


def route(network: str, *options: str) -> list[str]:
    asked = ["route", network, "--demands", "5", "--paths", "3", "--hidden", "12", "--seed", "0"]
    return [*asked, *options, *sets(ROUTE_SETS)]


def digits(scenario: str) -> list[str]:
    return ["digits", scenario, "--n", "50", "--rule", "margin", "--seed", "42", *sets(DIGITS_SETS)]


COMMANDS = {
    "route abilene 5/3": route("abilene"),
    "route polska 5/3": route("polska"),
    "route dfn-bwin 5/3, attacked": route("dfn-bwin", "--guarantee", "attacked"),
    "route abilene 5/3, certified": route("abilene", "--guarantee", "certified"),
    "route nobel-germany 5/3, certified": route("nobel-germany", "--guarantee", "certified"),
    "digits hard": digits("hard"),
    "digits plain": digits("plain"),
}
FITS = {
    "fit classifier, Probability": "probability",
    "fit regressor, Monotone trees": "monotone",
    "fit regressor, shielded Range": "shielded",
    "fit classifier, DecisionRate": "decisions",
}
RUNS = (*COMMANDS, *FITS)
INPUTS = 200  # at which predictions are compared
FEATURES = 3  # of the data of fits; all lie in [0, 1]
UNTIMED = {"certificate", "speaks_of", "sha256", "stored_version"}  # of files, or with times in
TIMES = ("_s", "seconds", "speedup")  # how names of times end
TABLE = {
    "strength": "strength",
    "mean gap": "mean_mlu_gap",
    "largest gap": "max_mlu_gap",
    "worst utilisation": "worst_utilisation",
    "test accuracy": "test_accuracy",
    "rows satisfied": "rows_satisfied",
    "loss": "loss",
    "score": "score",
}


def record(tree: Path, out: Path, names: list[str], limit_s: float) -> None:
    """Run everything by the code of a tree, one after the other, and write golden.json."""
    own = (
        f"import cg4ai, pathlib; assert pathlib.Path(cg4ai.__file__).is_relative_to({str(tree)!r})"
    )
    if call(tree, ["-c", own])[0]:
        raise SystemExit(f"the code that runs is not that of {tree}, where src/cg4ai is wanted")
    runs: dict[str, Record] = {}
    commit = ["git", "-C", str(tree), "describe", "--always", "--dirty"]
    said = subprocess.run(commit, capture_output=True, text=True, check=False)
    for name in names:
        folder = out / name.replace(", ", "-").replace(" ", "-").replace("/", "-")
        runs[name] = run_and_digest(tree, name, folder, limit_s)
        golden = {"tree": said.stdout.strip(), "runs": runs}
        (out / "golden.json").write_text(json.dumps(golden, indent=1) + "\n")
        state = f"exit code {runs[name]['exit_code']}, {runs[name]['wall_s']:.1f} s"
        print(f"{name}: {state}", file=sys.stderr, flush=True)


def run_and_digest(tree: Path, name: str, folder: Path, limit_s: float) -> Record:
    """One run by the code of a tree, and the digests of what it left in its folder."""
    started = time.perf_counter()
    if name in FITS:
        command = [str(Path(__file__).resolve()), "fit", FITS[name], str(folder)]
    else:
        command = [*entry_point(tree, COMMANDS[name]), "--threads", "1", "--quiet", "--no-report"]
        command += ["--out", str(folder), "--force"]
    code, errors = call(tree, command, limit_s)
    found: Record = {"exit_code": code, "wall_s": time.perf_counter() - started}
    if code not in (0, 3):  # 3: a rule is violated or unproven, which is a result
        print(f"{name}: exit code {code}: {errors.strip()[-500:]}", file=sys.stderr)
        return found
    summary = json.loads((folder / "summary.json").read_text())
    ensemble = json.loads((folder / "ensemble.json").read_text())
    found["members"] = digest_arrays(folder / "members.safetensors")
    found["weights"] = digest_weights(ensemble)
    code, errors = call(tree, [str(Path(__file__).resolve()), "predict", str(folder)])
    if code:
        raise SystemExit(f"{name}: predicting failed: {errors.strip()[-500:]}")
    found["predictions"] = digest_file(folder / "predictions.bin")
    return {**found, "figures": figures_of(summary)}


def entry_point(tree: Path, command: list[str]) -> list[str]:
    """The module and arguments of a command; digits stands in cg4ai or among the experiments."""
    if command[0] == "digits" and call(tree, ["-m", "cg4ai", "digits", "--help"])[0]:
        return ["-m", "experiments.digits", *command[1:]]
    return ["-m", "cg4ai", *command]


def environment_of(tree: Path) -> dict[str, str]:
    """In which Python runs the code of a tree with one thread."""
    search = [tree / "src", tree, *filter(Path.is_dir, [tree / "checker" / "src"])]
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return {**os.environ, **one, "PYTHONPATH": os.pathsep.join(map(str, search))}


def call(tree: Path, arguments: list[str], limit_s: float = 600.0) -> tuple[int, str]:
    """Exit code and errors of Python with these arguments, by the code of a tree and one thread."""
    try:
        ended = subprocess.run(
            [sys.executable, *arguments],
            env=environment_of(tree),
            cwd=tree,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 124, f"not back after {limit_s:g} s"
    return ended.returncode, ended.stderr


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_file(path: Path) -> str:
    return digest(path.read_bytes())


def digest_arrays(path: Path) -> dict[str, str]:
    """By name the digest of each array's dtype, shape and bytes, read without cg4ai."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), memoryview(data)[8 + size :]
    header.pop("__metadata__", None)
    digests = {}
    for name in sorted(header):
        entry = header[name]
        start, end = entry["data_offsets"]
        said = json.dumps([name, entry["dtype"], entry["shape"]]).encode()
        digests[name] = digest(said + bytes(body[start:end]))
    return digests


def digest_weights(ensemble: Record) -> str:
    """Of the weights of the mixture and, behind a shield, of its anchor."""
    weights = [ensemble["weights"]]
    if ensemble.get("shield"):
        weights.append(ensemble["shield"]["anchor"]["weights"])
    return digest(json.dumps(weights).encode())  # floats as written stand for their bits


def figures_of(summary: Record, prefix: str = "") -> Record:
    """All numbers and words of a summary but times and digests of files, by dotted names."""
    figures: Record = {}
    for name, value in summary.items():
        if name in UNTIMED or name.endswith(TIMES):
            continue
        if isinstance(value, dict):
            figures |= figures_of(value, f"{prefix}{name}.")
        else:
            figures[prefix + name] = value
    return figures


def predict(folder: Path) -> None:
    """Predictions of a stored ensemble at fixed random inputs, as the bytes of float64."""
    import cg4ai

    about = json.loads((folder / "ensemble.json").read_text())["about"]
    pixels = 784 if about.get("application") == "digits" else FEATURES
    largest = np.array(about.get("demand_max", [1.0] * pixels))
    inputs = np.random.default_rng(7).uniform(size=(INPUTS, len(largest))) * largest
    predicted = np.asarray(cg4ai.load(folder).predict(inputs), np.float64)
    if predicted.shape[0] != INPUTS or not np.isfinite(predicted).all():
        raise SystemExit(f"predictions of {folder} are not finite")
    (folder / "predictions.bin").write_bytes(np.ascontiguousarray(predicted).tobytes())


def fit(kind: str, folder: Path) -> None:
    """Fit one estimator by public names alone; its ensemble and a summary go into the folder."""
    import cg4ai

    random = np.random.default_rng(0)
    x = random.uniform(size=(240, FEATURES))
    noise = random.normal(size=len(x))
    value = 2 * x[:, 0] - x[:, 1] + np.sin(6 * x[:, 2]) + 0.2 * noise
    label = (value > np.median(value)).astype(int)
    few: dict[str, Any] = {"hidden": (8,), "steps": 100, "iteration_limit": 4, "random_state": 0}
    model: Any
    rules: list[Any]
    if kind == "probability":
        model = cg4ai.ConstrainedClassifier(members="network", **few)
        rules = [cg4ai.rules.Probability(x[:12], label[:12], at_least=0.7, name="listed")]
    elif kind == "monotone":
        model = cg4ai.ConstrainedRegressor(members="tree", iteration_limit=6, random_state=0)
        rules = [cg4ai.rules.Monotone({0: +1, 1: -1}, name="rises and falls")]
    elif kind == "shielded":
        model = cg4ai.ConstrainedRegressor(members="network", **few)
        box = cg4ai.rules.Box([0.0] * FEATURES, [1.0] * FEATURES)
        cap = cg4ai.rules.AffineBound(1.0, [1.0, 0.0, 0.0])
        rules = [
            cg4ai.rules.Linear(box, [1.0], cap, "<=", name="cap"),
            cg4ai.rules.Linear(box, [1.0], -0.5, ">=", name="floor"),
        ]
    else:
        model = cg4ai.ConstrainedClassifier(members="boosting", iteration_limit=5, random_state=0)
        group = (x[:, 2] > 0.5).astype(int)
        rules = [cg4ai.rules.DecisionRate(x, group, tolerance=0.05, name="parity")]
    target = value if kind in ("monotone", "shielded") else label
    model.fit(x, target, requirements=rules)
    model.ensemble_.save(folder)
    new = np.random.default_rng(8).uniform(size=(INPUTS, FEATURES))
    answers = np.asarray(model.predict(new), np.float64)
    summary = {
        "loss": model.result_.loss,
        "objective": model.result_.objective,
        "iterations": model.n_iter_,
        "columns": model.result_.columns,
        "rows": model.result_.rows,
        "feasible": model.result_.feasible,
        "strength": [audit.strength for audit in model.audit_],
        "worst violation": [audit.worst_violation for audit in model.audit_],
        "score": model.score_.model,
        "answers": digest(answers.tobytes()),
    }
    (folder / "summary.json").write_text(json.dumps(summary))


def compare(first: Path, second: Path, names: list[str] | None) -> bool:
    """Print the table and the figures that differ; whether all runs have the same bits."""
    both = [json.loads((folder / "golden.json").read_text()) for folder in (first, second)]
    stored = [golden["runs"] for golden in both]
    print(f"{first} ({both[0]['tree']}) and {second} ({both[1]['tree']})\n")
    recorded = [name for name in RUNS if any(name in runs for runs in stored)]
    columns = ["run", "members", "weights", "predictions", "exit code", *TABLE, "command s"]
    print_row(columns)
    print_row(["---"] * len(columns))
    same, others = True, []
    for name in names or recorded:
        pair = [runs.get(name, {"exit_code": "not recorded"}) for runs in stored]
        bits = [same_bits(pair, part) for part in ("members", "weights", "predictions")]
        same &= all(bits) and pair[0]["exit_code"] == pair[1]["exit_code"]
        figures = [run.get("figures", {}) for run in pair]
        cells = [[run["exit_code"] for run in pair]]
        cells += [[found.get(column) for found in figures] for column in TABLE.values()]
        cells += [[round(run.get("wall_s", 0), 1) for run in pair]]
        print_row([name, *("yes" if bit else "NO" for bit in bits), *map(side_by_side, cells)])
        if all("figures" in run for run in pair):
            others += [f"{name}: {line}" for line in differences(pair, figures)]
    print("\n" + "\n".join(["Differences:", *others] if others else ["No figure differs."]))
    print("\nThe same bits." if same else "\nBITS DIFFER.")
    return same


def same_bits(pair: list[Record], part: str) -> bool:
    return bool(pair[0].get(part)) and pair[0].get(part) == pair[1].get(part)


def differences(pair: list[Record], figures: list[Record]) -> list[str]:
    """Arrays and figures that are not the same in two runs, a line each."""
    lines = []
    for what, (before, after) in (
        ("array", [run.get("members", {}) for run in pair]),
        ("figure", figures),
    ):
        for name in sorted({*before, *after}):
            if name not in before or name not in after:
                lines.append(f"{what} {name} only in the {'second' if name in after else 'first'}")
            elif before[name] != after[name]:
                lines.append(f"{what} {name}: {before[name]!r} / {after[name]!r}")
    return lines


def side_by_side(pair: list[Any]) -> str:
    shown = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in pair]
    if pair == [None, None]:
        return ""
    return shown[0] if pair[0] == pair[1] else " / ".join(shown)


def print_row(cells: list[str]) -> None:
    print(f"| {' | '.join(cells)} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    tasks = parser.add_subparsers(dest="task", required=True)
    recording = tasks.add_parser("record", help="run everything by the code of a tree")
    recording.add_argument("tree", type=Path)
    recording.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    recording.add_argument("--limit", type=float, default=600.0, help="seconds of a run")
    comparing = tasks.add_parser("compare", help="two recordings; exit code 1 where bits differ")
    comparing.add_argument("first", type=Path)
    comparing.add_argument("second", type=Path)
    for task in (recording, comparing):
        task.add_argument("--only", nargs="*", choices=RUNS, metavar="RUN")
    fitting = tasks.add_parser("fit", help="one fit, as record starts it")
    fitting.add_argument("kind", choices=list(FITS.values()))
    predicting = tasks.add_parser("predict", help="predictions of a run, as record starts it")
    for task in (fitting, predicting):
        task.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.task == "compare":
        return 0 if compare(options.first, options.second, options.only) else 1
    if options.task == "fit":
        fit(options.kind, options.folder)
    elif options.task == "predict":
        predict(options.folder)
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        names = options.only or list(RUNS)
        record(options.tree.resolve(), options.out.resolve(), names, options.limit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
