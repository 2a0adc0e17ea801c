"""`python -m experiments.scores --out DIR`: are scores without rules as good as others'?

Log loss and Brier score of `ConstrainedClassifier()` with default settings on twelve tables, by
five folds, beside logistic regression, an MLP, a random forest and HistGradientBoosting of
scikit-learn at their defaults (the first two behind a `StandardScaler`). Each fold of each table is
a job of its own. What has been measured is kept in DIR and not run again. The defaults were
developed on the ten tables of `--tables development`, which share neither data nor seeds with those
that are reported.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from sklearn import datasets
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cg4ai import ConstrainedClassifier
from cg4ai.errors import FitWarning, InvalidInput, did_you_mean
from cg4ai.parallel import fan_out
from cg4ai.records import Array, IntArray
from cg4ai.report.tables import format_markdown
from cg4ai.runs import files
from experiments.command import KEPT, NOT_KEPT, Folder, Jobs, Quiet, Seed, command, say, silent

FOLDS = 5
REQUIRED = 10  # tables of the twelve on which ours is within one standard error of the best
OURS = "cg4ai"
SETS = ("reported", "development")
Table = tuple[Array, IntArray]


def draw_from_scores(generator: np.random.Generator, scores: Array) -> IntArray:
    """(n, classes) logits -> (n,) labels of these probabilities."""
    noise = generator.gumbel(size=scores.shape)
    return np.asarray((scores + noise).argmax(1))


def linear_table(n: int, d: int, classes: int, strength: float, seed: int) -> Table:
    """Logits linear in correlated features: what logistic regression is right about."""
    made = np.random.default_rng(seed)
    x = made.normal(size=(n, d)) @ (np.eye(d) + 0.3 * made.normal(size=(d, d)))
    slopes = made.normal(size=(d, classes)) * strength / np.sqrt(d)
    return x, draw_from_scores(made, x @ slopes)


def tree_table(n: int, d: int, classes: int, seed: int, depth: int = 5) -> Table:
    """Random axis-parallel cells, each with class chances of its own."""
    made = np.random.default_rng(seed)
    x = made.uniform(size=(n, d))
    features, cuts = made.integers(d, size=depth), made.uniform(0.3, 0.7, size=depth)
    cell = ((x[:, features] > cuts) * 2 ** np.arange(depth)).sum(1)
    scores = 2.0 * made.normal(size=(2**depth, classes))
    return x, draw_from_scores(made, scores[cell])


def smooth_table(n: int, d: int, seed: int, shift: float = 0.0) -> Table:
    """Two classes by a smooth function with interactions; `shift` makes the second rare."""
    made = np.random.default_rng(seed)
    x = made.normal(size=(n, d))
    score = 2 * np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + x[:, 3] ** 2 - 1 - shift
    return x, draw_from_scores(made, np.column_stack([np.zeros(n), score]))


def mixed_table(n: int, seed: int) -> Table:
    """Customers: amounts, counts, categories as indicators, steps and one interaction."""
    made = np.random.default_rng(seed)
    amount, age = made.lognormal(3, 1, n), made.uniform(18, 80, n)
    visits, region = made.poisson(3, n), made.integers(6, size=n)
    member = made.random(n) < 0.3
    score = 0.8 * np.log(amount) - 2.5 - 0.4 * visits + 1.2 * member * (age > 45)
    score = score + np.array([0, 0.5, -0.5, 1, 0, -1])[region]
    x = np.column_stack([amount, age, visits, member, np.eye(6)[region], made.normal(size=(n, 5))])
    return x, draw_from_scores(made, np.column_stack([np.zeros(n), score]))


def xor_table(n: int, d: int, seed: int) -> Table:
    """The sign of a product of two features, a tenth of the labels wrong, the rest noise."""
    made = np.random.default_rng(seed)
    x = made.uniform(-1, 1, size=(n, d))
    return x, np.asarray((x[:, 0] * x[:, 1] > 0) ^ (made.random(n) < 0.1), np.int64)


def cut_into_classes(x: Array, y: Array, classes: int) -> Table:
    """Numbers as classes of equal size."""
    return x, np.searchsorted(np.quantile(y, np.arange(1, classes) / classes), y)


def near_separable(n: int, d: int, seed: int) -> Table:
    """Two far groups on a few hidden factors: most rows are certain, some are wrong."""
    made = np.random.default_rng(seed)
    y = made.integers(2, size=n)
    factors = made.normal(size=(n, 5)) + 3.2 * y[:, None] * np.array([1, 0.5, 0, 0, 0])
    return factors @ made.normal(size=(5, d)) + 0.3 * made.normal(size=(n, d)), y


def _built_in(load: Callable[..., Table]) -> Table:
    return load(return_X_y=True)


REPORTED: dict[str, Callable[[], Table]] = {
    "iris": partial(_built_in, datasets.load_iris),
    "wine": partial(_built_in, datasets.load_wine),
    "breast cancer": partial(_built_in, datasets.load_breast_cancer),
    "digits": partial(_built_in, datasets.load_digits),
    "linear, 120 x 6": partial(linear_table, 120, 6, 2, 1.5, 101),
    "linear, 4 classes, 2000 x 15": partial(linear_table, 2000, 15, 4, 2.0, 102),
    "moons, 400 x 2": partial(datasets.make_moons, 400, noise=0.35, random_state=103),
    "cells, 1500 x 8": partial(tree_table, 1500, 8, 2, 104),
    "smooth, rare class, 3000 x 8": partial(smooth_table, 3000, 8, 105, 2.5),
    "clusters, 5 classes, 1000 x 20": partial(
        datasets.make_classification,
        1000,
        n_informative=8,
        n_classes=5,
        flip_y=0.05,
        random_state=106,
    ),
    "customers, 8000 x 15": partial(mixed_table, 8000, 107),
    "sum of squares, 12000 x 10": partial(datasets.make_hastie_10_2, 12000, random_state=108),
}


def _diabetes() -> Table:
    x, y = datasets.load_diabetes(return_X_y=True)
    return cut_into_classes(x, y, 2)


def _friedman(make: Callable[..., Table], n: int, classes: int, noise: float, seed: int) -> Table:
    x, y = make(n, noise=noise, random_state=seed)
    return cut_into_classes(x, np.asarray(y, float), classes)


DEVELOPMENT: dict[str, Callable[[], Table]] = {
    "diabetes above its median": _diabetes,
    "friedman1, 500": partial(_friedman, datasets.make_friedman1, 500, 2, 2.0, 1),
    "friedman2, 4 classes, 800": partial(_friedman, datasets.make_friedman2, 800, 4, 60.0, 2),
    "blobs, 4 classes, 150 x 8": partial(
        datasets.make_blobs, 150, n_features=8, centers=4, cluster_std=6.0, random_state=3
    ),
    "circles, 300": partial(datasets.make_circles, 300, noise=0.2, factor=0.5, random_state=4),
    "near separable, 400 x 30": partial(near_separable, 400, 30, 5),
    "linear, 100 x 20": partial(linear_table, 100, 20, 2, 2.0, 6),
    "xor, 2000 x 12": partial(xor_table, 2000, 12, 7),
    "cells, 3 classes, 1200 x 6": partial(tree_table, 1200, 6, 3, 8, 4),
    "smooth, very rare class, 3000 x 10": partial(smooth_table, 3000, 10, 9, 4.0),
}
TABLES: Mapping[str, dict[str, Callable[[], Table]]] = {
    "reported": REPORTED,
    "development": DEVELOPMENT,
}


def learners(seed: int) -> dict[str, Any]:
    """What is compared, fresh."""
    return {
        OURS: ConstrainedClassifier(random_state=seed),
        "logistic": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "MLP": make_pipeline(StandardScaler(), MLPClassifier(random_state=seed)),
        "forest": RandomForestClassifier(random_state=seed),
        "HGB": HistGradientBoostingClassifier(random_state=seed),
    }


@dataclass(frozen=True)
class Job:
    """One fold of one table."""

    tables: str
    table: str
    fold: int
    seed: int
    out: str

    @property
    def file(self) -> Path:
        number = list(TABLES[self.tables]).index(self.table)
        return Path(self.out) / f"{self.tables}-{number}-seed{self.seed}-fold{self.fold}.json"


def measure(job: Job) -> dict[str, Any]:
    """Log loss, Brier score and seconds of each learner on one fold, or what is known of them."""
    if job.file.is_file():
        known: dict[str, Any] = files.read_json(job.file)
        return known
    x, y = TABLES[job.tables][job.table]()
    y = np.unique(y, return_inverse=True)[1]
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=job.seed)
    train, test = list(folds.split(x, y))[job.fold]
    found: dict[str, Any] = {}
    for name, model in learners(job.seed).items():
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", FitWarning)
            model.fit(x[train], y[train])
        seconds = time.perf_counter() - started
        found[name] = {**compute_scores(model.predict_proba(x[test]), y[test]), "seconds": seconds}
    job.file.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(job.file, found)
    return found


def compute_scores(chances: Array, labels: IntArray) -> dict[str, float]:
    """Mean log loss, chances counting as 1e-15 at least, and half the sum of squares."""
    right = chances[np.arange(len(labels)), labels]
    wanted = np.eye(chances.shape[1])[labels]
    return {
        "log loss": float(-np.log(np.clip(right, 1e-15, 1)).mean()),
        "Brier": float(np.square(chances - wanted).sum(1).mean() / 2),
        "accuracy": float((chances.argmax(1) == labels).mean()),
    }


def compare(found: Sequence[Mapping[str, Any]], measure: str) -> dict[str, Any]:
    """One table: means over folds, and ours less the best's in standard errors of that."""
    by_name = {name: np.array([one[name][measure] for one in found]) for name in found[0]}
    others = {name: values for name, values in by_name.items() if name != OURS}
    best = min(others, key=lambda name: others[name].mean())
    difference = by_name[OURS] - others[best]
    error = others[best].std(ddof=1) / np.sqrt(len(difference))
    paired = difference.std(ddof=1) / np.sqrt(len(difference))
    within = bool(difference.mean() <= error)
    row: dict[str, Any] = {name: f"{values.mean():.4f}" for name, values in by_name.items()}
    return row | {
        "best other": best,
        "its s.e.": f"{error:.4f}",
        "ours - best": f"{difference.mean():+.4f} +- {paired:.4f}",
        "within": "yes" if within else "no",
    }


def study(
    out: Folder = Path("runs/scores"),
    tables: Annotated[str, typer.Option(help="reported or development.")] = "reported",
    only: Annotated[list[str] | None, typer.Option(help="Names of tables; all if unset.")] = None,
    seed: Seed = 0,
    jobs: Jobs = None,
    quiet: Quiet = False,
) -> int:
    """Measure log loss and Brier score on twelve tables by five folds; writes scores.md."""
    if tables not in TABLES:
        raise InvalidInput(f"--tables must be {' or '.join(SETS)}, got {tables!r}")
    known = TABLES[tables]
    for name in only or ():
        if name not in known:
            raise InvalidInput(f"there is no table {name!r}{did_you_mean(name, list(known))}")
    names = list(only or known)
    tell = silent if quiet else say
    work = [Job(tables, name, fold, seed, str(out)) for name in names for fold in range(FOLDS)]
    tell(f"{len(work)} folds, {sum(one.file.is_file() for one in work)} of them known")
    found = fan_out(measure, work, n_jobs=-1 if jobs is None else jobs, threads=1)
    folds = {name: found[k * FOLDS : (k + 1) * FOLDS] for k, name in enumerate(names)}
    text, good = report(folds)
    (out / "scores.md").write_text(text, encoding="utf-8")
    print(text)
    return KEPT if good or only or tables != "reported" else NOT_KEPT


def report(folds: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[str, bool]:
    """Tables as Markdown, and whether ours is good enough on as many tables as is required."""
    parts, good = [], True
    for measured in ("log loss", "Brier"):
        rows = [{"table": name} | compare(found, measured) for name, found in folds.items()]
        count = sum(row["within"] == "yes" for row in rows)
        good = good and count >= REQUIRED
        parts.append(
            f"### {measured}\n\nWithin one standard error of the best other: {count} of "
            f"{len(rows)}.\n\n{format_markdown(rows)}"
        )
    rows = []
    for name, found in folds.items():
        seconds = {key: np.mean([one[key]["seconds"] for one in found]) for key in found[0]}
        rows.append({"table": name} | {key: f"{value:.2f}" for key, value in seconds.items()})
    parts.append(f"### Seconds of a fit\n\n{format_markdown(rows)}")
    return "\n\n".join(parts) + "\n", good


def main(arguments: Sequence[str] | None = None) -> int:
    return command(study, "python -m experiments.scores", "--out runs/scores --jobs 16", arguments)


if __name__ == "__main__":
    raise SystemExit(main())
