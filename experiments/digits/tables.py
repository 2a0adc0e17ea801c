"""Tables of the digits experiments, from saved summaries alone: ours beside the paper's.

Figures are means over the seeds that have ended, with the sample standard deviation and how many
seeds these are. What has not ended says so in its cell and is listed at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai.report.tables import cell, csv_text
from cg4ai.runs import files
from experiments.digits.data import CLASSES
from experiments.digits.paper import (
    COMPARED_ACCURACY,
    PAPER_SIZES,
    paper_accuracy,
    paper_comparison,
    paper_satisfaction,
)
from experiments.digits.problem import RELABELLED
from experiments.digits.results import (
    NOT_RUN,
    SETTINGS,
    Measure,
    SavedUnits,
    Spread,
    Summary,
    Table,
    accuracy,
    compared,
    figure,
    per_cent,
    satisfied,
)
from experiments.digits.units import (
    ABLATION,
    CURVES,
    GROUPS,
    LITERAL,
    MAIN,
    PUBLISHED,
    PUBLISHED_CURVES,
    RULES,
    TENTHS,
    VARIANTS,
    Baseline,
    Mixture,
)

FOLDER = "tables"
WORDS = {
    "margin-only": "margin, constraints only",
    "probability-only": "probability, constraints only",
    "margin-hard": "margin, hard and trained",
    "margin-unblurred": "margin, hard and trained, no blur",
    "margin-augmented": "margin, hard and trained, augmented",
    "probability-augmented": "probability, hard and trained, augmented",
    "margin-split-2": "margin, 2 tenths hard, 8 trained",
}
# beside the methods, without and with augmentation
MIXTURES = {False: ("margin-only", "margin-hard", "margin-unblurred"), True: ("margin-augmented",)}


def write_tables(out: Path, *, note: str = "") -> SavedUnits:
    """All tables into `out`/tables: tables.md for people, a CSV file each, and runs.csv."""
    saved = SavedUnits.read(out)
    tables = all_tables(saved)
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for table in tables:
        files.write_bytes(folder / f"{table.name}.csv", table.csv().encode())
    files.write_bytes(folder / "runs.csv", csv_text(every_run(saved)).encode())
    files.write_bytes(folder / "tables.md", report(saved, tables, note=note).encode())
    return saved


def report(saved: SavedUnits, tables: Sequence[Table], *, note: str = "") -> str:
    """All tables and what is missing, for people; `note` comes before everything."""
    seeds = sorted({unit.seed for unit in saved.summaries})
    images = sorted({str(summary["data"]) for summary in saved.summaries.values()})
    lines = [
        "# Digits: the experiments of the paper",
        "",
        *([note, ""] if note else []),
        f"Mean ± sample standard deviation over seeds ({', '.join(map(str, seeds))} are there) "
        "and, in brackets, how many of them, with a word where a time limit ended them; "
        f"accuracies and shares are per cent; images: {', '.join(images)}; 2,000 test images.",
        "",
        *(table.markdown() for table in tables),
        "## Missing",
        "",
    ]
    lacking = saved.missing()
    lines += [f"- {text}" for text in lacking] if lacking else ["Nothing."]
    return "\n".join(lines) + "\n"


def every_run(saved: SavedUnits) -> list[dict[str, Any]]:
    """One row per run (two for a baseline, by its settings), without nested values."""
    rows = []
    for unit, summary in sorted(saved.summaries.items()):
        start = {"variant": unit.variant, "n": unit.n, "seed": unit.seed}
        parts = summary.get("comparison", [{}])
        for part in parts:
            whole = {**start, **summary, **part}
            rows.append(
                {k: v for k, v in whole.items() if v is None or isinstance(v, str | int | float)}
            )
    return rows


def all_tables(saved: SavedUnits) -> list[Table]:
    return [
        paper_accuracy(saved),
        paper_comparison(saved),
        paper_satisfaction(saved),
        main_table(saved),
        methods_table(saved),
        splits_table(saved),
        sizes_table(saved),
        robust_table(saved),
        correct_table(saved),
        relabel_table(saved),
        ablation_table(saved),
    ]


def main_table(saved: SavedUnits) -> Table:
    rows = []
    printed = {
        (row.variant, n): value
        for row in COMPARED_ACCURACY
        for n, value in zip(PAPER_SIZES, row.figures, strict=True)
    }
    for n in saved.sizes(MAIN):
        for variant in MAIN:
            if not saved.of(variant, n):
                continue
            average, wide = _counterparts(variant)
            tuned = compared("test_accuracy", "tuned")
            rows.append(
                {
                    "n": n,
                    "mixture": WORDS[variant],
                    "rows satisfied": saved.cell(variant, n, satisfied),
                    "test accuracy": saved.cell(variant, n, accuracy),
                    "paper": printed.get((variant, n)),
                    "uniform average": saved.beside(average, n, tuned, ours=variant),
                    "single": saved.cell(variant, n, per_cent("single_accuracy")),
                    "wide network": saved.beside(wide, n, tuned, ours=variant),
                    "columns until feasible": saved.cell(
                        variant, n, figure("feasible_after_columns")
                    ),
                    "fewest columns": saved.cell(variant, n, figure("fewest_columns")),
                    "active members": saved.cell(variant, n, figure("active_members")),
                    "seconds": saved.cell(variant, n, figure("total_s")),
                }
            )
    return Table(
        "main",
        "Main table",
        "`uniform average`: as many members as the mixture that is hard and trained has (for "
        "probabilities without augmentation, constraints only), trained independently on the same "
        "images (augmented where the row is) and averaged by the same rule; `wide network`: one "
        "with as many hidden neurons as the members of the margin rule have together. Both have "
        "chosen settings, where without augmentation the blur of our first layers is a candidate, "
        "and no guarantee; their means are over the seeds that the mixture has too. `single`: one "
        "member trained as in the paper. `paper`: its accuracy, constraints only. `fewest "
        "columns`: the first so many members trained can meet all rows; members enter in groups, "
        "which is what `columns until feasible` counts in.",
        rows,
    )


def _counterparts(variant: str) -> tuple[str, str]:
    """The average and the wide network on the same data, by the same rule where that matters."""
    kind = VARIANTS[variant]
    rule = "-probability" if kind.rule == "probability" else ""
    data = "-augmented" if kind.augment else ""
    return f"average{rule}{data}", f"wide{data}"


def methods_table(saved: SavedUnits) -> Table:
    rows = []
    for n in saved.sizes(GROUPS["ours"]["methods"]):
        for augmented in (False, True):
            start = {"n": n, "augmented": augmented}
            for variant in GROUPS["ours"]["methods"]:
                kind = VARIANTS[variant]
                if isinstance(kind, Baseline) and kind.augment == augmented:
                    rows += [start | row for row in _method_rows(saved, variant, n)]
            for variant in MIXTURES[augmented]:
                if saved.of(variant, n):
                    rows.append(
                        start
                        | {
                            "method": f"mixture: {WORDS[variant]}",
                            "blur": _each(saved.of(variant, n), "blur"),
                            "test accuracy": saved.cell(variant, n, accuracy),
                            "rows satisfied": saved.cell(variant, n, satisfied),
                            "seconds": saved.cell(variant, n, figure("total_s")),
                        }
                    )
    return Table(
        "methods",
        "Comparison of methods",
        "The same images, sizes of members, seeds and margin rule for all; augmented: the same "
        "copies for all. `blur`: pixels by which the first layer is blurred in training, seed by "
        "seed where seeds differ; 0 with the paper's settings, chosen between 0 and ours with "
        "tuned ones, and always 0 where augmented. `given labels`: methods that are told labels at "
        "inference (DC3 at hard images, the oracle projection everywhere). `seconds` to train, "
        "`choosing` to choose settings before.",
        rows,
    )


def _method_rows(saved: SavedUnits, variant: str, n: int) -> list[dict[str, Any]]:
    made = []
    for settings in SETTINGS:
        parts = [
            part
            for summary in saved.of(variant, n)
            for part in summary["comparison"]
            if part["settings"] == settings
        ]
        spreads = {
            title: Spread.of(None if part[key] is None else scale * part[key] for part in parts)
            for title, key, scale in (
                ("test accuracy", "test_accuracy", 100),
                ("rows satisfied", "rows_satisfied", 100),
                ("rows, given labels", "rows_satisfied_given_labels", 100),
                ("accuracy, given labels", "accuracy_given_labels", 100),
                ("seconds", "seconds", 1),
                ("choosing", "choosing_s", 1),
            )
        }
        name = next((part["method"] for part in parts), variant)
        start = {"method": name, "settings": settings, "blur": _each(parts, "blur")}
        missing = {} if parts else dict.fromkeys(spreads, NOT_RUN)
        made.append(start | spreads | missing)
    return made


def _each(parts: Sequence[Summary], key: str) -> str | None:
    """The value of every seed, or once if they agree; None where none was saved."""
    values = [f"{part[key]:g}" for part in parts if part.get(key) is not None]
    return ", ".join(values if len(set(values)) > 1 else values[:1]) or None


def splits_table(saved: SavedUnits) -> Table:
    rows = []
    variants = {rule: _split_variants(rule) for rule in RULES}
    for n in saved.sizes(variant for of in variants.values() for variant in of.values()):
        for rule, of in variants.items():
            for (tenths, reading), variant in of.items():
                kind = VARIANTS[variant]
                assert isinstance(kind, Mixture)
                if reading == LITERAL and kind.problem_with(n):
                    continue  # the row of tenths says it
                hard = n // CLASSES if tenths == CLASSES else kind.hard_per_class(n)
                if kind.problem_with(n):
                    hard = None
                published = PUBLISHED + variant
                rows.append(
                    {
                        "n": n,
                        "rule": rule,
                        "hard": hard,
                        "trained": None if hard is None else n // CLASSES - hard,
                        "test accuracy": saved.cell(variant, n, accuracy),
                        "rows satisfied": saved.cell(variant, n, satisfied),
                        "as published: test accuracy": saved.cell(published, n, accuracy),
                        "as published: rows satisfied": saved.cell(published, n, satisfied),
                        "as published: columns": saved.cell(published, n, figure("columns")),
                    }
                )
    return Table(
        "splits",
        "Scenario 1: hard set and optimisation set",
        "`hard`, `trained`: images per class, for 2, 5 and 8 of every ten and, where that differs, "
        "of each class; no augmentation; none trained is constraints only. Tenths of few images "
        "are rounded so that at least one is hard and one trained.",
        rows,
    )


def _split_variants(rule: str) -> dict[tuple[int, str], str]:
    """(Hard images of ten, how that is read) -> variant; ten is constraints only."""
    made = {
        (tenths, reading): f"{rule}-split-{tenths}{reading}"
        for reading in ("", LITERAL)
        for tenths in TENTHS
        if tenths or not reading
    }
    return dict(sorted((made | {(CLASSES, ""): f"{rule}-only"}).items()))


def sizes_table(saved: SavedUnits) -> Table:
    rows = []
    for n in saved.sizes((*CURVES, *PUBLISHED_CURVES)):
        line: dict[str, Any] = {"n": n, "single": saved.base(n) or NOT_RUN}
        line |= {WORDS[variant]: saved.cell(variant, n, accuracy) for variant in CURVES}
        line |= {
            f"as published: {WORDS[variant.removeprefix(PUBLISHED)]}": saved.cell(
                variant, n, accuracy
            )
            for variant in PUBLISHED_CURVES
        }
        rows.append(line)
    return Table("sizes", "Test accuracy by number of training images", "As in the figure.", rows)


def _scenario_rows(
    saved: SavedUnits, scenario: str, measures: Mapping[str, Measure]
) -> list[dict[str, Any]]:
    variants = {
        (rule, method): f"{prefix}{rule}-{scenario}"
        for rule in RULES
        for method, prefix in (("ours", ""), ("as published", PUBLISHED))
    }
    return [
        {"n": n, "rule": rule, "method": method}
        | {title: saved.cell(variant, n, measure) for title, measure in measures.items()}
        for n in saved.sizes(variants.values())
        for (rule, method), variant in variants.items()
    ]


def robust_table(saved: SavedUnits) -> Table:
    measures: dict[str, Measure] = {
        "attacked images required": figure("rows"),
        "of them satisfied": satisfied,
        "withstand, training, before": per_cent("withstand_train_before"),
        "training, after": per_cent("withstand_train_after"),
        "withstand, test, before": per_cent("withstand_test_before"),
        "test, after": per_cent("withstand_test_after"),
        "test accuracy": accuracy,
        "single": per_cent("single_accuracy"),
        "seconds": figure("total_s"),
    }
    return Table(
        "robust",
        "Scenario 2: withstanding attacks",
        "Share of images answered right as they are and after up to so many flipped pixels, chosen "
        "against that very classifier: the base member (before) and the mixture (after).",
        [
            {"pixels": pixels, **row}
            for pixels, scenario in ((10, "robust-10"), (100, "robust"))
            for row in _scenario_rows(saved, scenario, measures)
        ],
    )


def correct_table(saved: SavedUnits) -> Table:
    measures = {
        "images to correct": figure("rows"),
        "corrected": satisfied,
        "test accuracy": accuracy,
        "single": per_cent("single_accuracy"),
        "seconds": figure("total_s"),
    }
    return Table(
        "correct",
        "Scenario 3: correcting what the base member gets wrong",
        "Training images that the base member answers wrongly are required. Where there are none "
        "nothing is to be corrected.",
        _scenario_rows(saved, "correct", measures),
    )


def relabel_table(saved: SavedUnits) -> Table:
    measures = {
        "images to relabel": figure("rows"),
        "answered as asked": per_cent("target_answered_as_asked"),
        "of test images of a 3": per_cent("test_target_answered_as_asked"),
        "other classes, base member": per_cent("other_classes_single_accuracy"),
        "other classes, after": per_cent("other_classes_accuracy"),
        "test accuracy, original labels": accuracy,
        "seconds": figure("total_s"),
    }
    rows = _scenario_rows(saved, "relabel", measures)
    for row in rows:
        prefix = "" if row["method"] == "ours" else PUBLISHED
        row["other classes, mixture without rows"] = saved.cell(
            f"{prefix}{row['rule']}-split-0", row["n"], _other_classes
        )
    return Table(
        "relabel",
        "Scenario 4: a 3 is to be answered 2",
        "`other classes`: accuracy on test images of all digits but 3, before (the base member, "
        "and the mixture that is trained on all images without any row) and after.",
        rows,
    )


def ablation_table(saved: SavedUnits) -> Table:
    rows = []
    for n in saved.sizes(ABLATION):
        for variant in ABLATION:
            kind = VARIANTS[variant]
            assert isinstance(kind, Mixture)
            rows.append(
                {
                    "n": n,
                    "rule": kind.rule,
                    "rows": "a 3 answered 2" if kind.scenario == "relabel" else "all images",
                    "members of a group": saved.cell(variant, n, figure("first_group_members")),
                    "one group: rows satisfied": saved.cell(variant, n, _first_satisfied),
                    "one group: test accuracy": saved.cell(
                        variant, n, per_cent("first_group_accuracy")
                    ),
                    "all: rows satisfied": saved.cell(variant, n, satisfied),
                    "all: test accuracy": saved.cell(variant, n, accuracy),
                    "all: columns": saved.cell(variant, n, figure("columns")),
                    "seconds": saved.cell(variant, n, figure("total_s")),
                }
            )
    return Table(
        "ablation",
        "What column generation adds to one group",
        "`one group`: the first that was trained, jointly, with equal weights: no dual has had a "
        "part in it. `all`: what column generation made of it, with further groups trained by the "
        "duals and weights chosen by the master; where groups are small, as many members at most "
        "as the usual group has. Where both are the same, one group suffices.",
        rows,
    )


def _first_satisfied(summary: Summary) -> float | None:
    rows, kept = summary["rows"], summary.get("first_group_rows_satisfied")
    return 100 * float(kept) / rows if rows and kept is not None else None


def _other_classes(summary: Summary) -> float:
    """Test images are equally many of each class, so the mean over classes is the accuracy."""
    others = [share for digit, share in enumerate(summary["class_accuracy"]) if digit != RELABELLED]
    return 100 * float(np.mean(others))


def totals(saved: SavedUnits) -> list[dict[str, Any]]:
    """What the command prints: how much is there, and the main accuracies."""
    lines = [{"": "runs that have ended", "value": str(len(saved.summaries))}]
    for row in main_table(saved).rows:
        rows, correct = row["rows satisfied"], row["test accuracy"]
        value = f"test accuracy {cell(correct)} %, rows satisfied {cell(rows)} %"
        lines.append({"": f"{row['mixture']}, n={row['n']}", "value": value})
    return lines
