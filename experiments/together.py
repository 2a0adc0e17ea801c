"""`python -m experiments.together`: rules together at every input, beside what people do today.

Three cases, each on data drawn anew from a seed, at half, once and twice the size, and in other
units: a monotone price under a cap of one group, monotone quantiles in order, and a hierarchy of
sums above zero. Every rule is counted at a million fresh pairs or points.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from lightgbm import LGBMRegressor
from sklearn.ensemble import HistGradientBoostingRegressor

from cg4ai import ConstrainedRegressor
from cg4ai.data import Array
from cg4ai.errors import InvalidInput
from cg4ai.report.tables import format_markdown
from cg4ai.rules import AffineBound, Box, Equality, Linear, Monotone, Range
from experiments.command import Folder, command, say

Predict = Callable[[Array], Array]
ROWS, TEST, CHECKED = 1000, 20_000, 1_000_000
QUANTILES = (0.1, 0.5, 0.9)
FEATURES = 6
MORE, LESS, GROUP = 0, 1, 5  # outputs rise with the first, fall with the second
PARTS, FAMILIES = 6, 2
# the total, two regions and three products, of which each pair is a series at the bottom
SUMS = np.vstack(
    [
        np.ones((1, PARTS)),
        np.kron(np.eye(FAMILIES), np.ones((1, PARTS // FAMILIES))),
        np.kron(np.ones((1, FAMILIES)), np.eye(PARTS // FAMILIES)),
    ]
)
MISSED = 1e-9  # of the outputs' size: what counts as a violation


class Way(NamedTuple):
    """A trained model: its predictions, and seconds of a processor to train it."""

    predict: Predict
    seconds: float


class Scale(NamedTuple):
    """The size of a case and its units."""

    rows: int
    unit: float  # of outputs; inputs have its inverse


def together(
    cases: Annotated[
        list[str] | None, typer.Argument(metavar="[CASE ...]", help="cap, quantiles, hierarchy.")
    ] = None,
    *,
    out: Folder = Path("together"),
    seeds: Annotated[int, typer.Option(help="How many.")] = 3,
    first: Annotated[int, typer.Option(help="The first seed.")] = 201,
    checked: Annotated[int, typer.Option(help="Pairs or points for each rule.")] = CHECKED,
) -> None:
    """Train and count; DIR/together.jsonl has a line for each model, together.md the table.

    What is in DIR already is not trained again.
    """
    chosen = cases or list(STUDIES)
    if unknown := [one for one in chosen if one not in STUDIES]:
        raise InvalidInput(f"cases are {', '.join(STUDIES)}, got {unknown[0]!r}")
    out.mkdir(parents=True, exist_ok=True)
    store = out / "together.jsonl"
    found = [json.loads(line) for line in store.read_text().splitlines()] if store.exists() else []
    known = {(one["case"], one["rows"], one["unit"], one["seed"]) for one in found}
    scales = [Scale(ROWS, 1.0), Scale(ROWS // 2, 1.0), Scale(2 * ROWS, 1.0), Scale(ROWS, 1000.0)]
    for scale in scales:
        for case in chosen:
            for seed in range(first, first + seeds):
                if (case, scale.rows, scale.unit, seed) in known:
                    continue
                # without rules, and at a million inputs, at the usual size alone
                usual = scale == scales[0]
                about = {"case": case, **scale._asdict(), "seed": seed}
                count = checked if usual else checked // 10
                rows = [about | one for one in STUDIES[case](scale, seed, count, usual)]
                with store.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in rows)
                found += rows
                say(f"{case}, {scale.rows} rows, unit {scale.unit:g}, seed {seed}")
    (out / "together.md").write_text(summarise(found))


# ---- a monotone price under a cap ----------------------------------------------------------------


def _people(scale: Scale, rows: int, random: np.random.Generator) -> Array:
    x = random.uniform(0, 1, (rows, FEATURES))
    x[:, GROUP] = x[:, GROUP] < 0.3
    return x / scale.unit


def _price(x: Array, scale: Scale) -> Array:
    """The mean of the outputs, which rises and falls as the rule says and breaks the cap."""
    u = x * scale.unit
    shape = 2 * np.sqrt(u[:, 0]) - 1.2 * u[:, 1] ** 2 + np.sin(5 * u[:, 2]) * u[:, 3] + u[:, 4]
    return np.asarray(scale.unit * (shape + 0.5 * u[:, GROUP] * u[:, 0]))


def _cap(x: Array, scale: Scale) -> Array:
    u = x * scale.unit
    return np.asarray(scale.unit * (1.2 + 0.6 * u[:, 0] - 0.4 * u[:, 1] + 0.3 * u[:, 2]))


def study_cap(scale: Scale, seed: int, checked: int, plain_too: bool) -> list[dict[str, Any]]:
    """The group with 1 pays at most the cap; the same people are charged more where it is not."""
    random = np.random.default_rng(seed)
    x, new = (_people(scale, rows, random) for rows in (scale.rows, TEST))
    noise = 0.2 * scale.unit
    y = _price(x, scale) + random.normal(0, noise, len(x))
    # what is true of the capped: their prices are capped, too
    held = np.where(x[:, GROUP] > 0, np.minimum(y, _cap(x, scale)), y)
    truth = _price(new, scale)
    truth = np.where(new[:, GROUP] > 0, np.minimum(truth, _cap(new, scale)), truth)
    # the cap is for incomes from 0.2 to 0.8: outside it nothing is asked
    low, high = np.zeros(FEATURES), np.full(FEATURES, 1 / scale.unit)
    low[MORE], high[MORE] = 0.2 / scale.unit, 0.8 / scale.unit
    low[GROUP] = high[GROUP]
    slope = np.zeros(FEATURES)
    slope[[0, 1, 2]] = [0.6, -0.4, 0.3]
    bound = AffineBound(1.2 * scale.unit, slope * scale.unit * scale.unit)
    rules = [
        Monotone({MORE: +1, LESS: -1}, name="price"),
        Linear(Box(low, high), [1.0], bound, "<=", name="cap"),
    ]
    signs = [0] * FEATURES
    signs[MORE], signs[LESS] = 1, -1

    def clipped(predict: Predict) -> Predict:
        def answer(z: Array) -> Array:
            inside = ((z >= low) & (z <= high)).all(axis=1)
            return np.where(inside, np.minimum(predict(z), _cap(z, scale)), predict(z))

        return answer

    ways = {
        "LightGBM": _boosted(x, held, seed),
        "LightGBM, monotone": _boosted(x, held, seed, monotone_constraints=signs),
    }
    ways["LightGBM, monotone, clipped"] = Way(
        clipped(ways["LightGBM, monotone"].predict), ways["LightGBM, monotone"].seconds
    )
    if plain_too:
        ways["cg4ai without rules"] = _ours(x, held, [], seed)
    ways["cg4ai"] = _ours(x, held, rules, seed)
    one, other = _rising_pairs(scale, checked, random)
    place = random.uniform(low, high, (checked, FEATURES))
    size = float(np.abs(held).max())
    found = []
    for name, way in ways.items():
        own, predict = _checked(name, checked), way.predict
        found.append(
            {
                "way": name,
                "score": _r2(truth, predict(new)),
                "checked": own,
                "falling pairs": _count(predict(one[:own]) - predict(other[:own]), size),
                "above the cap": _count(predict(place[:own]) - _cap(place[:own], scale), size),
                "seconds": way.seconds,
            }
        )
    return found


def _checked(name: str, checked: int) -> int:
    """Others are known to break rules: a tenth of the inputs tells how often."""
    return checked if name == "cg4ai" else checked // 10


def _rising_pairs(scale: Scale, count: int, random: np.random.Generator) -> tuple[Array, Array]:
    """Inputs, and others with more of what outputs rise with and less of what they fall with."""
    one = _people(scale, count, random)
    other = one.copy()
    step = random.uniform(0, 0.5, (count, 2)) / scale.unit
    other[:, MORE] += step[:, 0]
    other[:, LESS] -= step[:, 1]
    return one, other


# ---- monotone quantiles in order -----------------------------------------------------------------


def study_quantiles(scale: Scale, seed: int, checked: int, plain_too: bool) -> list[dict[str, Any]]:
    """Quantiles of a skewed price, each of which rises with income and falls with distance."""
    random = np.random.default_rng(seed)
    x, new = (_people(scale, rows, random) for rows in (scale.rows, TEST))

    def draw(z: Array) -> Array:
        u = z * scale.unit
        spread = (0.1 + 0.6 * u[:, 0]) * random.exponential(1.0, len(z))
        return np.asarray(_price(z, scale) + scale.unit * spread)

    y, actual = draw(x), draw(new)
    signs = [0] * FEATURES
    signs[MORE], signs[LESS] = 1, -1
    rules = [Monotone({MORE: +1, LESS: -1}, name="price")]

    def boosted() -> Way:
        each = [_boosted(x, y, seed, objective="quantile", alpha=alpha) for alpha in QUANTILES]
        return Way(
            lambda z: np.column_stack([one.predict(z) for one in each]),
            sum(one.seconds for one in each),
        )

    # LightGBM refuses monotone constraints of quantiles
    ways = {"LightGBM": boosted(), "scikit-learn, monotone": _steps(x, y, signs, seed)}
    for name in tuple(ways):
        ways[f"{name}, sorted"] = _sorted(ways[name])
    more = {"loss": "pinball", "quantiles": QUANTILES}
    if plain_too:
        ways["cg4ai without rules"] = _ours(x, y, [], seed, **more)
    ways["cg4ai"] = _ours(x, y, rules, seed, **more)
    one, other = _rising_pairs(scale, checked, random)
    size = float(np.abs(y).max())
    found = []
    for name, way in ways.items():
        own = _checked(name, checked)
        before, after = way.predict(one[:own]), way.predict(other[:own])
        found.append(
            {
                "way": name,
                "score": _pinball(actual, way.predict(new)) / scale.unit,
                "checked": own,
                "falling pairs": _count((before - after).max(axis=1), size),
                "crossing": _count(-np.diff(before, axis=1).min(axis=1), size),
                "seconds": way.seconds,
            }
        )
    return found


def _pinball(actual: Array, predicted: Array) -> float:
    rest = actual[:, None] - predicted
    levels = np.array(QUANTILES)
    return float(np.maximum(levels * rest, (levels - 1) * rest).mean())


# ---- a hierarchy above zero ----------------------------------------------------------------------


def _demand(
    scale: Scale, rows: int, random: np.random.Generator, about: Array
) -> tuple[Array, Array]:
    """Intermittent demand of the series at the bottom, with what is known before."""
    u = random.uniform(0, 1, (rows, FEATURES))
    level = np.exp(u @ about / 2) * (1 + np.sin(6 * u[:, :1] + np.arange(PARTS)))
    present = random.uniform(size=(rows, PARTS)) < 0.25 + 0.5 * u[:, 1:2]
    drawn = np.where(present, level * random.gamma(4.0, 0.25, (rows, PARTS)), 0.0)
    return u / scale.unit, drawn * scale.unit


def study_hierarchy(scale: Scale, seed: int, checked: int, plain_too: bool) -> list[dict[str, Any]]:
    """The mean demand of six series and of their sums by region, by product and in all."""
    random = np.random.default_rng(seed)
    about = random.normal(size=(FEATURES, PARTS))
    x, bottom = _demand(scale, scale.rows, random, about)
    new, later = _demand(scale, TEST, random, about)
    y, actual = (np.column_stack([one @ SUMS.T, one]) for one in (bottom, later))
    sums = len(SUMS)
    coherent = np.vstack([SUMS, np.eye(PARTS)])
    nearest = coherent @ np.linalg.pinv(coherent)
    rules = [
        Equality(None, np.column_stack([np.eye(sums), -SUMS]), 0.0, name="hierarchy"),
        Range(0.0, None, name="above zero"),
    ]
    base = _each(x, y, seed)

    def summed(predict: Predict) -> Predict:
        def answer(z: Array) -> Array:
            own = np.maximum(predict(z)[:, sums:], 0.0)
            return np.column_stack([own @ SUMS.T, own])

        return answer

    ways = {
        "LightGBM, each series": base,
        "bottom-up, clipped": Way(summed(base.predict), base.seconds),
        "least squares": Way(lambda z: base.predict(z) @ nearest.T, base.seconds),
        "least squares, clipped": Way(
            lambda z: np.maximum(base.predict(z) @ nearest.T, 0.0), base.seconds
        ),
        "least squares, bottom clipped": Way(
            summed(lambda z: base.predict(z) @ nearest.T), base.seconds
        ),
        "cg4ai": _ours(x, y, rules, seed),
    }
    if plain_too:
        ways["cg4ai without rules"] = _ours(x, y, [], seed)
    points = random.uniform(-0.5, 1.5, (checked, FEATURES)) / scale.unit
    size = float(np.abs(y).max())
    usual = y.std(axis=0)
    found = []
    for name, way in ways.items():
        errors = np.sqrt(np.square((way.predict(new) - actual) / usual).mean(axis=0))
        own = _checked(name, checked)
        at = np.concatenate([way.predict(part) for part in np.array_split(points[:own], 20)])
        found.append(
            {
                "way": name,
                "score": float(errors.mean()),
                "sums": float(errors[:sums].mean()),
                "bottom": float(errors[sums:].mean()),
                "checked": own,
                "below zero": _count(-at.min(axis=1), size),
                "incoherent": _count(
                    np.abs(at[:, :sums] - at[:, sums:] @ SUMS.T).max(axis=1), size
                ),
                "seconds": way.seconds,
            }
        )
    return found


# ---- models --------------------------------------------------------------------------------------


def _boosted(x: Array, y: Array, seed: int, **more: Any) -> Way:
    started = time.process_time()
    model = LGBMRegressor(
        n_estimators=100, learning_rate=0.05, verbose=-1, n_jobs=1, random_state=seed, **more
    )
    model.fit(x, y)
    return Way(lambda z: np.asarray(model.predict(z)), time.process_time() - started)


def _steps(x: Array, y: Array, signs: Sequence[int], seed: int) -> Way:
    """Quantiles of histogram boosting, each under monotone constraints."""
    started = time.process_time()
    each = [
        HistGradientBoostingRegressor(
            loss="quantile", quantile=level, monotonic_cst=signs, random_state=seed
        ).fit(x, y)
        for level in QUANTILES
    ]
    return Way(
        lambda z: np.column_stack([one.predict(z) for one in each]), time.process_time() - started
    )


def _sorted(way: Way) -> Way:
    return Way(lambda z: np.sort(way.predict(z), axis=1), way.seconds)


def _each(x: Array, y: Array, seed: int) -> Way:
    ways = [_boosted(x, column, seed) for column in y.T]
    return Way(
        lambda z: np.column_stack([one.predict(z) for one in ways]),
        sum(one.seconds for one in ways),
    )


def _ours(x: Array, y: Array, rules: Sequence[Any], seed: int, **more: Any) -> Way:
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of limits that ended training
        model = ConstrainedRegressor(random_state=seed, **more).fit(x, y, requirements=list(rules))
    strengths = {str(one.strength) for one in model.audit_}
    if strengths - {"constructed"}:
        raise InvalidInput(f"rules are kept as {strengths}, not by construction")
    ensemble = model.ensemble_

    def predict(z: Array) -> Array:
        found = np.asarray(ensemble.predict(z, outside="ignore"))
        return found[:, 0] if found.shape[1] == 1 else found

    return Way(predict, time.process_time() - started)


def _count(excess: Array, size: float) -> int:
    return int((excess > MISSED * size).sum())


def _r2(actual: Array, predicted: Array) -> float:
    return float(1 - np.square(actual - predicted).sum() / np.square(actual - actual.mean()).sum())


STUDIES: dict[str, Callable[[Scale, int, int, bool], list[dict[str, Any]]]] = {
    "cap": study_cap,
    "quantiles": study_quantiles,
    "hierarchy": study_hierarchy,
}
TITLES = {
    "cap": "A monotone price under a cap (score: R2 against the true mean, larger is better)",
    "quantiles": "Monotone quantiles in order (score: mean pinball loss, smaller is better)",
    "hierarchy": "A hierarchy above zero (score: mean root mean squared error of 12 series, each "
    "in its deviation, smaller is better)",
}
COUNTS = ("falling pairs", "above the cap", "crossing", "below zero", "incoherent")


def summarise(found: Sequence[dict[str, Any]]) -> str:
    """The tables: for each case, size, unit and way the scores and all violations."""
    parts = [
        "# Rules together",
        f"`python -m experiments.together`. Sizes are rows of training; scores are of {TEST:,} new "
        "rows, means and worst of the seeds. Violations are summed over seeds, among so many fresh "
        f"pairs or points as `checked` says, by more than {MISSED:g} of the largest output. "
        "Defaults of `ConstrainedRegressor`; LightGBM with 100 trees and a rate of 0.05. Training "
        "in seconds of one core.",
    ]
    for case, title in TITLES.items():
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for one in found:
            if one["case"] == case:
                groups.setdefault((one["rows"], one["unit"], one["way"]), []).append(one)
        rows = []
        for (size, unit, way), runs in groups.items():
            scores = [one["score"] for one in runs]
            worst = min(scores) if case == "cap" else max(scores)
            row = {"rows": size, "unit": f"{unit:g}", "way": way, "seeds": len(runs)}
            row |= {"score": f"{np.mean(scores):.4f}", "worst": f"{worst:.4f}"}
            row["checked"] = sum(one["checked"] for one in runs)
            row |= {name: sum(one[name] for one in runs) for name in COUNTS if name in runs[0]}
            row["seconds"] = f"{np.mean([one['seconds'] for one in runs]):.1f}"
            rows.append(row)
        if rows:
            parts += [f"## {title}", format_markdown(rows)]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    raise SystemExit(
        command(together, "python -m experiments.together", "cap --seeds 1 --out /tmp/together")
    )
