"""Applications: the protocol that each implements, the runner of all, and the one of tables.

`register` makes an application of another package known; see `cg4ai.apps.registry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cg4ai.apps.registry import register
from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.apps.changes import LastAnswer, LimitedOutputs
    from cg4ai.apps.csv_tables import CsvTable, format_list, read_csv
    from cg4ai.apps.drift import Excess, format_excess, summarise_drift
    from cg4ai.apps.explorer import describe_page, export_page_program, render_explorer
    from cg4ai.apps.folders import (
        ALL_ARCS,
        ARRAYS,
        DESCRIPTION,
        NOTES,
        PATH_SOURCE,
        POSITIONS,
        UPDATE_OF,
        check_application,
        check_same,
        complete,
        describe_mixture,
        get_asked_settings,
        load_trained,
    )
    from cg4ai.apps.json_tables import read_table
    from cg4ai.apps.predictions import TIME, PredictionOptions, RunPredictor
    from cg4ai.apps.protocol import (
        Answers,
        Application,
        Evaluation,
        Guarantee,
        InputColumn,
        Interface,
        Proposition,
        Rule,
        RunSettings,
        Signature,
        Solver,
        TrainedDefaults,
        TrainedModel,
        TrainingOutcome,
        TrainingTask,
        solve_plainly,
    )
    from cg4ai.apps.runner import perform
    from cg4ai.extras import import_optional
    from cg4ai.pages.program import array_data
    from cg4ai.parallel import iterate_as_completed
    from cg4ai.settings import (
        MOST_UNITS,
        CheckedSettings,
        device_setting,
        hidden_setting,
        jobs_setting,
        seed_setting,
        setting,
        threads_setting,
        time_limit_setting,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.apps.changes": ["LastAnswer", "LimitedOutputs"],
            "cg4ai.apps.csv_tables": ["CsvTable", "format_list", "read_csv"],
            "cg4ai.apps.drift": ["Excess", "format_excess", "summarise_drift"],
            "cg4ai.apps.explorer": ["describe_page", "export_page_program", "render_explorer"],
            "cg4ai.apps.folders": [
                "ALL_ARCS",
                "ARRAYS",
                "DESCRIPTION",
                "NOTES",
                "PATH_SOURCE",
                "POSITIONS",
                "UPDATE_OF",
                "describe_mixture",
                "get_asked_settings",
                "check_application",
                "check_same",
                "complete",
                "load_trained",
            ],
            "cg4ai.apps.protocol": [
                "Answers",
                "Application",
                "Evaluation",
                "Guarantee",
                "InputColumn",
                "Interface",
                "Proposition",
                "Rule",
                "RunSettings",
                "Signature",
                "TrainingOutcome",
                "Solver",
                "TrainingTask",
                "TrainedModel",
                "TrainedDefaults",
                "solve_plainly",
            ],
            "cg4ai.apps.json_tables": ["read_table"],
            "cg4ai.apps.predictions": ["TIME", "PredictionOptions", "RunPredictor"],
            "cg4ai.apps.runner": ["perform"],
            "cg4ai.pages.program": ["array_data"],
            "cg4ai.extras": ["import_optional"],
            "cg4ai.parallel": ["iterate_as_completed"],
            "cg4ai.settings": [
                "CheckedSettings",
                "MOST_UNITS",
                "device_setting",
                "hidden_setting",
                "jobs_setting",
                "seed_setting",
                "setting",
                "threads_setting",
                "time_limit_setting",
            ],
        },
        shown=["register"],
    )

__all__ = [
    "ALL_ARCS",
    "ARRAYS",
    "DESCRIPTION",
    "MOST_UNITS",
    "NOTES",
    "PATH_SOURCE",
    "POSITIONS",
    "TIME",
    "UPDATE_OF",
    "Answers",
    "Application",
    "CheckedSettings",
    "CsvTable",
    "Evaluation",
    "Excess",
    "Guarantee",
    "InputColumn",
    "Interface",
    "LastAnswer",
    "LimitedOutputs",
    "PredictionOptions",
    "Proposition",
    "Rule",
    "RunPredictor",
    "RunSettings",
    "Signature",
    "Solver",
    "TrainedDefaults",
    "TrainedModel",
    "TrainingOutcome",
    "TrainingTask",
    "array_data",
    "check_application",
    "check_same",
    "complete",
    "describe_mixture",
    "describe_page",
    "device_setting",
    "export_page_program",
    "format_excess",
    "format_list",
    "get_asked_settings",
    "hidden_setting",
    "import_optional",
    "iterate_as_completed",
    "jobs_setting",
    "load_trained",
    "perform",
    "read_csv",
    "read_table",
    "register",
    "render_explorer",
    "seed_setting",
    "setting",
    "solve_plainly",
    "summarise_drift",
    "threads_setting",
    "time_limit_setting",
]


def _tabular() -> Any:
    from cg4ai.apps.tabular.app import APPLICATION

    return APPLICATION


register("train", kind="tabular", load=_tabular)
