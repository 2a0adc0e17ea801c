"""`python -m experiments.decisions`: parity and odds on new rows, beside Fairlearn.

Each cell is one method on one task with one seed. Figures are kept in DIR, and only missing ones
are measured, so that the command goes on where it was ended. Two tables are real (of scikit-learn)
and have all rows that are not trained on as fresh ones, four are drawn and have 20,000. The group
is known in training only, or a feature of all methods. Accuracies are compared at equal gaps on
fresh rows: those of Fairlearn between its results for several bounds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from sklearn.datasets import load_diabetes, load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cg4ai import ConstrainedClassifier, runs
from cg4ai.data import Array, IntArray, fit_with_requirements
from cg4ai.errors import InvalidInput
from cg4ai.estimators.simple_members import ScaledLogistic
from cg4ai.report import format_markdown
from cg4ai.rules import DecisionRate
from experiments.command import KEPT, NOT_KEPT, Again, ReportOnly, command, say
from experiments.peers.cells import Cell, measured
from experiments.peers.outcomes import Clock, Outcome
from experiments.peers.people import People, census, smooth
from experiments.peers.report import commit, machine, saved, stored

FRESH = 20_000
SIZES = (2_000, 5_000, 20_000)
SHARES = (0.25, 0.5, 1.0, 2.0)  # of the tolerance, which Fairlearn is given as its bound
ALONE = 400  # rows that are decided one by one
OURS, LINE, BEHIND = "ours", "ours, logistic regression", "ours, behind PCA"
REDUCTION, THRESHOLDS, PLAIN = "ExponentiatedGradient", "ThresholdOptimizer", "no rule"
STUDY = "decisions"


def three_groups(seed: int, rows: int) -> People:
    """Three groups of 55, 30 and 15 in 100; ten features, some skewed, in very different units."""
    random = np.random.default_rng(20_000 + seed)
    groups = random.choice(3, rows, p=[0.55, 0.3, 0.15])
    inputs = random.normal(size=(rows, 10))
    inputs[:, 0] += 0.6 * groups
    inputs[:, 1] -= 0.5 * (groups == 1)
    inputs[:, 2] += 0.7 * (groups == 2)
    score = inputs[:, :4] @ [0.9, 0.7, -0.5, 0.4] + 0.5 * np.abs(inputs[:, 4]) - 0.7
    labels = (score + random.logistic(size=rows) > 0).astype(np.int64)
    inputs[:, 5] = np.exp(inputs[:, 5])
    return People(inputs * np.logspace(-3, 4, 10), labels, groups)


def rare_yes(seed: int, rows: int) -> People:
    """One in eight is a yes, one in four of the smaller group; steps and products matter."""
    random = np.random.default_rng(30_000 + seed)
    groups = (random.random(rows) < 0.25).astype(np.int64)
    inputs = random.normal(size=(rows, 6))
    inputs[:, 0] -= 0.7 * groups
    inputs[:, 1] = np.round(2 * inputs[:, 1] + 0.8 * groups)
    score = (
        1.5 * (inputs[:, 0] > 0.8) + 0.4 * inputs[:, 1] + inputs[:, 2] * inputs[:, 3]
        + 0.5 * inputs[:, 4] - 3.0
    )  # fmt: skip
    return People(inputs, (score + random.logistic(size=rows) > 0).astype(np.int64), groups)


def _real(name: str, seed: int) -> tuple[People, People]:
    """All rows of a table in scikit-learn, half of them to train on."""
    if name == "diabetes":  # by sex; who is worse off than the median a year later
        inputs, target = load_diabetes(return_X_y=True)
        groups, labels = (inputs[:, 1] > 0).astype(np.int64), (target > np.median(target))
        inputs = np.delete(inputs, 1, axis=1)
    else:  # images of digits: whether they are even, by whether they are below five
        inputs, target = load_digits(return_X_y=True)
        groups, labels = (target < 5).astype(np.int64), target % 2 == 0
    order = np.random.default_rng(seed).permutation(len(inputs))
    people = People(inputs[order], labels[order].astype(np.int64), groups[order])
    cut = len(order) // 2
    return _part(people, slice(cut)), _part(people, slice(cut, None))


def _part(people: People, rows: slice) -> People:
    return People(people.inputs[rows], people.labels[rows], people.groups[rows])


DRAWN: Mapping[str, Callable[[int, int], People]] = {
    "smooth": smooth,
    "census-like": census,
    "three groups": three_groups,
    "rare yes": rare_yes,
}
REAL = ("diabetes", "digits")


@dataclass(frozen=True)
class Task:
    """One table, how many of its rows are trained on (0: half of all), and the rule."""

    table: str
    rows: int
    of: str
    known: bool

    @property
    def tolerance(self) -> float:
        return 0.02 if self.of == "selection" else 0.05

    @property
    def name(self) -> str:
        rows = f"{self.rows:,} rows" if self.rows else "half of its rows"
        group = "group known" if self.known else "group in training only"
        return f"{self.table}, {rows}, {self.of} within {self.tolerance:g}, {group}"

    def draw(self, seed: int) -> tuple[People, People]:
        """Rows to train on, and fresh ones; a known group is their last feature."""
        if self.rows:
            source = DRAWN[self.table]
            found = source(seed, self.rows), source(seed + 1000, FRESH)
        else:
            found = _real(self.table, seed)
        if not self.known:
            return found
        first, second = (
            People(np.column_stack([one.inputs, one.groups]), one.labels, one.groups)
            for one in found
        )
        return first, second

    def cells(self, people: People) -> list[list[IntArray]]:
        """For each condition the rows of each group."""
        every = np.ones(len(people.labels), bool)
        kept = [every] if self.of == "selection" else [people.labels == 1, people.labels == 0]
        names = np.unique(people.groups)
        return [[np.flatnonzero(one & (people.groups == g)) for g in names] for one in kept]

    def gap(self, decided: Array, people: People) -> float:
        """The largest difference of two groups' rates."""
        return max(
            float(np.ptp([decided[rows].mean() for rows in groups]))
            for groups in self.cells(people)
        )

    def error(self, decided: Array, fresh: People, train: People) -> float:
        """The standard error of a gap between groups as large as those trained on."""
        found = []
        for mine, own in zip(self.cells(fresh), self.cells(train), strict=True):
            shares = [decided[rows].mean() for rows in mine]
            spread = [p * (1 - p) / len(rows) for p, rows in zip(shares, own, strict=True)]
            found.append(float(np.sqrt(sum(sorted(spread)[-2:]))))
        return max(found)


def all_tasks(tables: Sequence[str], sizes: Sequence[int]) -> list[Task]:
    return [
        Task(table, rows, of, known)
        for table in tables
        for rows in (sizes if table in DRAWN else (0,))
        for of in ("selection", "equalised odds")
        for known in (False, True)
    ]


def _measure(task: Task, method: str, seed: int, fit: Callable[..., Any]) -> Outcome:
    train, fresh = task.draw(seed)
    with Clock() as clock:
        model = fit(task, train)
    decided = model(fresh)
    figures = {
        "accuracy": float((decided == fresh.labels).mean()),
        "fresh_gap": task.gap(decided, fresh),
        "train_gap": task.gap(model(train), train),
        "error": task.error(decided, fresh, train),
        "train_s": clock.seconds,
    }
    if method.startswith(OURS):
        some = _part(fresh, slice(ALONE))
        alone = [model(_part(some, slice(k, k + 1)))[0] for k in range(len(some.labels))]
        figures["alone"] = float((np.array(alone) != decided[:ALONE]).sum())
        parts = [model(_part(fresh, slice(k, k + 777))) for k in range(0, len(decided), 777)]
        figures["batches"] = float((np.concatenate(parts) != decided).sum())
        rounded = replace(fresh, inputs=fresh.inputs.astype(np.float32))
        figures["float32"] = float((model(rounded) != decided).mean())
    return Outcome(task.name, method, seed, figures)


def _ours(task: Task, train: People, members: Any = "auto", *, pca: bool = False) -> Any:
    last = train.inputs.shape[1] - 1 if task.known else None
    rule = DecisionRate(
        train.inputs,
        train.groups,
        tolerance=task.tolerance,
        of=task.of,
        labels=train.labels,
        group_feature=None if pca else last,
    )
    model: Any = ConstrainedClassifier(members=members, random_state=0)
    if pca:
        size = max(2, train.inputs.shape[1] // 2)
        model = make_pipeline(StandardScaler(), PCA(size, random_state=0), model)
        model = fit_with_requirements(model, train.inputs, train.labels, [rule])
    else:
        model.fit(train.inputs, train.labels, requirements=[rule])
    return lambda given: np.asarray(model.predict(given.inputs))


def _line() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))


class _Scaled(LogisticRegression):  # type: ignore[misc]
    """Takes weights, which a pipeline would want by another name."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> _Scaled:
        self.scaler_ = StandardScaler().fit(X)
        super().fit(self.scaler_.transform(X), y, sample_weight)
        return self

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(self.scaler_.transform(X))

    def decision_function(self, X: Any) -> Any:
        return super().decision_function(X)

    def predict(self, X: Any) -> Any:
        return super().predict(self.scaler_.transform(X))


def _reduction(task: Task, train: People, share: float) -> Any:
    """Its bound is on each group's distance from all, so that two may be twice as far apart."""
    from fairlearn import reductions

    kind = "DemographicParity" if task.of == "selection" else "EqualizedOdds"
    bound = getattr(reductions, kind)(difference_bound=share * task.tolerance)
    model = reductions.ExponentiatedGradient(_Scaled(max_iter=1000), bound)
    model.fit(train.inputs, train.labels, sensitive_features=train.groups)
    return lambda given: np.asarray(model.predict(given.inputs, random_state=0))


def _thresholds(task: Task, train: People, share: float) -> Any:
    from fairlearn.postprocessing import ThresholdOptimizer

    parity = task.of == "selection"
    model = ThresholdOptimizer(
        estimator=_line(),
        constraints="demographic_parity" if parity else "equalized_odds",
        predict_method="predict_proba",
        tol=share * task.tolerance if parity and share else None,
    )
    model.fit(train.inputs, train.labels, sensitive_features=train.groups)
    return lambda given: np.asarray(
        model.predict(given.inputs, sensitive_features=given.groups, random_state=0)
    )


def _plain(task: Task, train: People) -> Any:
    model = _line().fit(train.inputs, train.labels)
    return lambda given: np.asarray(model.predict(given.inputs))


def methods_of(task: Task) -> dict[str, Callable[..., Any]]:
    """All methods by name; those that need the group where it is known alone."""
    found: dict[str, Callable[..., Any]] = {
        OURS: _ours,
        LINE: partial(_ours, members=ScaledLogistic(max_iter=1000)),
    }
    if task.rows in (0, 2_000) and not task.known:
        found[BEHIND] = partial(_ours, pca=True)
    for share in SHARES:
        found[f"{REDUCTION}, bound {share:g}"] = partial(_reduction, share=share)
    if task.known:
        for share in (0.0, *SHARES) if task.of == "selection" else (0.0,):
            found[f"{THRESHOLDS}, bound {share:g}"] = partial(_thresholds, share=share)
    found[PLAIN] = _plain
    return found


def mean(outcomes: Sequence[Outcome], task: str, method: str, figure: str) -> float:
    values = [one.figures[figure] for one in outcomes if one.task == task and one.method == method]
    return float(np.mean(values)) if values else float("nan")


def at_equal_gap(outcomes: Sequence[Outcome], task: str, peer: str, gap: float) -> float:
    """A peer's accuracy at this mean gap on fresh rows, between its results for several bounds.

    Beyond them that of the nearest.
    """
    names = {one.method for one in outcomes if one.task == task and one.method.startswith(peer)}
    names |= {PLAIN} if names else set()
    points = sorted(
        (mean(outcomes, task, one, "fresh_gap"), mean(outcomes, task, one, "accuracy"))
        for one in names
    )
    if not points:
        return float("nan")
    gaps, accuracies = np.array(points).T
    return float(np.interp(gap, gaps, np.maximum.accumulate(accuracies)))


def write(target: Path, outcomes: Sequence[Outcome], tasks: Sequence[Task]) -> None:
    """The report: for each task ours beside Fairlearn."""
    rows: list[dict[str, Any]] = []
    kept = behind = 0
    for task in tasks:
        for method in (OURS, LINE, BEHIND):
            mine = [one for one in outcomes if one.task == task.name and one.method == method]
            if not mine:
                continue
            value = partial(mean, outcomes, task.name, method)
            gap, accuracy = value("fresh_gap"), value("accuracy")
            worst = max(one.figures["fresh_gap"] for one in mine)
            allowed = task.tolerance + value("error")
            first, second = (
                at_equal_gap(outcomes, task.name, peer, gap) for peer in (REDUCTION, THRESHOLDS)
            )
            if method == OURS:
                kept += gap <= allowed
                best = max(one for one in (first, second, 0.0) if not np.isnan(one))
                behind += accuracy < best - 1e-9
            quickest = f"{REDUCTION}, bound 0.5"
            rows.append(
                {
                    "task": task.name,
                    "method": method,
                    "seeds": len(mine),
                    "fresh gap (worst)": f"{gap:.4f} ({worst:.4f})",
                    "allowed": f"{allowed:.4f}",
                    "accuracy": f"{accuracy:.4f}",
                    "reduction at equal gap": f"{first:.4f}",
                    "thresholds at equal gap": "-" if np.isnan(second) else f"{second:.4f}",
                    "alone / batches / float32": (
                        f"{value('alone'):.3g} / {value('batches'):.3g} / {value('float32'):.1e}"
                    ),
                    "s": f"{value('train_s'):.1f}",
                    "reduction, s": f"{mean(outcomes, task.name, quickest, 'train_s'):.1f}",
                }
            )
    found = sum(1 for row in rows if row["method"] == OURS)
    lines = [
        "# Decisions on new rows, beside Fairlearn",
        "",
        "Made by `python -m experiments.decisions`. Means over seeds. Fresh gap: the largest "
        "difference of two groups' rates on rows that were not trained on, 20,000 of drawn tables, "
        "the other half of the rows of real ones. Allowed: the tolerance and one standard error of "
        "a gap between groups of the training size. At equal gap: the accuracy of "
        "ExponentiatedGradient and ThresholdOptimizer (logistic regression) with bounds of "
        f"{', '.join(map(str, SHARES))} times the tolerance, "
        "and of no rule, interpolated at ours' mean fresh gap; beyond their gaps that of "
        "the nearest. Alone, batches: decisions of "
        f"{ALONE} rows one by one, and of all in batches of 777, that differ; float32: share of "
        "rows decided otherwise when they are rounded. Seconds are processor time of one core.",
        "",
        f"Gap as allowed: {kept} of {found} tasks; accuracy below a peer's at equal gap: {behind}.",
        "",
        format_markdown(rows),
        f"Measured on {machine()}.",
        "",
    ]
    target.parent.mkdir(parents=True, exist_ok=True)
    runs.write_bytes(target, "\n".join(lines).encode())


def decisions(
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many draws of each table.")] = 5,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of their seeds.")] = 100,
    tables: Annotated[
        str, typer.Option(metavar="NAMES", help="Tables, with commas between; all if left out.")
    ] = "",
    sizes: Annotated[
        str, typer.Option(metavar="ROWS", help="Rows of drawn tables, with commas between.")
    ] = ",".join(map(str, SIZES)),
    jobs: Annotated[int, typer.Option(min=1, help="Cells measured at a time.")] = 1,
    force: Again = False,
    report_only: ReportOnly = False,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where figures are kept, to go on later.")
    ] = Path("decisions-results"),
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Markdown report; DIR/results.md if unset.")
    ] = None,
) -> None:
    """Parity within 0.02 and odds within 0.05 on six tables, beside Fairlearn.

    Only what is missing in DIR is measured. Exit code 0: the mean gap on fresh rows is within the
    tolerance and one standard error for every task; 3: it is not.
    """
    torch.set_num_threads(1)
    names = [one.strip() for one in tables.split(",") if one.strip()] or [*REAL, *DRAWN]
    for name in names:
        if name not in (*REAL, *DRAWN):
            raise InvalidInput(
                f"unknown table {name!r}; use {', '.join((*REAL, *DRAWN))}", code="unknown-name"
            )
    tasks = all_tasks(names, [int(one) for one in sizes.split(",")])
    known = [] if force else stored(out / f"{STUDY}.json")
    done, begun = {one.key for one in known}, commit()
    cells = [
        Cell(task.name, method, seed, partial(_measure, task, method, seed, fit))
        for task in tasks
        for seed in range(first_seed, first_seed + seeds)
        for method, fit in methods_of(task).items()
    ]
    missing = [] if report_only else [one for one in cells if one.key not in done]
    found: list[Outcome] = []
    for number, outcome in enumerate(measured(missing, jobs)):
        found.append(replace(outcome, commit=begun))
        saved(out, STUDY, found, quick=False)
        say(f"{number + 1} of {len(missing)}: {outcome.task}: {outcome.method}")
    target = report or out / "results.md"
    outcomes = stored(out / f"{STUDY}.json")
    measured_for = {one.task for one in outcomes if one.method == OURS}
    tasks = [one for one in tasks if one.name in measured_for]
    write(target, outcomes, tasks)
    print(f"Report: {target}")
    within = [
        mean(outcomes, one.name, OURS, "fresh_gap")
        <= one.tolerance + mean(outcomes, one.name, OURS, "error")
        for one in tasks
    ]
    raise typer.Exit(KEPT if all(within) else NOT_KEPT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    return command(decisions, "python -m experiments.decisions", "--jobs 16", arguments)


if __name__ == "__main__":
    sys.exit(main())
