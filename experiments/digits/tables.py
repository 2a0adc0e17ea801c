"""Tables of the digits experiments, from saved summaries alone: ours beside the paper's.

Figures are means over the seeds that have ended, with the sample standard deviation. What has not
ended is an empty cell and is listed at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cg4ai.apps.digits.problem import RELABELLED
from cg4ai.apps.tables import cell, csv_text
from cg4ai.runs import files
from experiments.digits.paper import (
    COMPARED_ACCURACY,
    PAPER_SIZES,
    paper_accuracy,
    paper_comparison,
    paper_satisfaction,
)
from experiments.digits.results import (
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
    CURVES,
    GROUPS,
    MAIN,
    RULES,
    TENTHS,
    VARIANTS,
    Baseline,
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
        f"Mean ± sample standard deviation over seeds ({', '.join(map(str, seeds))} are there); "
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
                    "rows satisfied": saved.spread(variant, n, satisfied),
                    "test accuracy": saved.spread(variant, n, accuracy),
                    "paper": printed.get((variant, n)),
                    "uniform average": saved.beside(average, n, tuned, ours=variant),
                    "single": saved.spread(variant, n, per_cent("single_accuracy")),
                    "wide network": saved.beside(wide, n, tuned, ours=variant),
                    "columns until feasible": saved.spread(
                        variant, n, figure("feasible_after_columns")
                    ),
                    "fewest columns": saved.spread(variant, n, figure("fewest_columns")),
                    "active members": saved.spread(variant, n, figure("active_members")),
                    "seconds": saved.spread(variant, n, figure("total_s")),
                    "seeds": len(saved.of(variant, n)),
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
    for n in saved.sizes(GROUPS["methods"]):
        for augmented in (False, True):
            start = {"n": n, "augmented": augmented}
            for variant in GROUPS["methods"]:
                kind = VARIANTS[variant]
                if isinstance(kind, Baseline) and kind.augment == augmented:
                    rows += [start | row for row in _method_rows(saved, variant, n) if row["seeds"]]
            for variant in MIXTURES[augmented]:
                if saved.of(variant, n):
                    rows.append(
                        start
                        | {
                            "method": f"mixture: {WORDS[variant]}",
                            "blur": _each(saved.of(variant, n), "blur"),
                            "test accuracy": saved.spread(variant, n, accuracy),
                            "rows satisfied": saved.spread(variant, n, satisfied),
                            "seconds": saved.spread(variant, n, figure("total_s")),
                            "seeds": len(saved.of(variant, n)),
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
        made.append(start | spreads | {"seeds": len(parts)})
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
            for tenths, variant in of.items():
                if saved.of(variant, n):
                    rows.append(
                        {
                            "n": n,
                            "rule": rule,
                            "hard": tenths * n // 100,
                            "trained": (10 - tenths) * n // 100,
                            "test accuracy": saved.spread(variant, n, accuracy),
                            "rows satisfied": saved.spread(variant, n, satisfied),
                            "seeds": len(saved.of(variant, n)),
                        }
                    )
    return Table(
        "splits",
        "Scenario 1: hard set and optimisation set",
        "`hard`, `trained`: images per class; no augmentation; none trained is constraints only.",
        rows,
    )


def _split_variants(rule: str) -> dict[int, str]:
    """Tenths in the hard set -> variant; ten is constraints only."""
    return {tenths: f"{rule}-split-{tenths}" for tenths in TENTHS} | {10: f"{rule}-only"}


def sizes_table(saved: SavedUnits) -> Table:
    rows = []
    for n in saved.sizes(CURVES):
        line: dict[str, Any] = {"n": n, "single": saved.base(n)}
        line |= {WORDS[variant]: saved.spread(variant, n, accuracy) for variant in CURVES}
        rows.append(line)
    return Table("sizes", "Test accuracy by number of training images", "As in the figure.", rows)


def _scenario_rows(
    saved: SavedUnits, scenario: str, measures: Mapping[str, Measure]
) -> list[dict[str, Any]]:
    return [
        {"n": n, "rule": rule}
        | {title: saved.spread(variant, n, measure) for title, measure in measures.items()}
        | {"seeds": len(saved.of(variant, n))}
        for n in saved.sizes(f"{rule}-{scenario}" for rule in RULES)
        for rule in RULES
        if saved.of(variant := f"{rule}-{scenario}", n)
    ]


def robust_table(saved: SavedUnits) -> Table:
    measures = {
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
        "Share of images answered right as they are and after up to 100 flipped pixels, chosen "
        "against that very classifier: the base member (before) and the mixture (after).",
        _scenario_rows(saved, "robust", measures),
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
        row["other classes, mixture without rows"] = saved.spread(
            f"{row['rule']}-split-0", row["n"], _other_classes
        )
    return Table(
        "relabel",
        "Scenario 4: a 3 is to be answered 2",
        "`other classes`: accuracy on test images of all digits but 3, before (the base member, "
        "and the mixture that is trained on all images without any row) and after.",
        rows,
    )


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
