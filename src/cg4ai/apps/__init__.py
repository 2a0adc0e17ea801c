"""What an application must be able to do, how every one is run, and the application of tables.

`register` makes an application of another package known; see `cg4ai.apps.registry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cg4ai.apps.registry import register
from cg4ai.exports import lazy_exports

if TYPE_CHECKING:
    from cg4ai.apps.csv_tables import CsvTable, listed, read_csv
    from cg4ai.apps.folders import (
        ALL_ARCS,
        ARRAYS,
        DESCRIPTION,
        NOTES,
        POSITIONS,
        about_of,
        asked_of,
        check_application,
        check_same,
        complete,
        trained,
    )
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
        Solved,
        Solver,
        Task,
        Trained,
        TrainedDefaults,
        solve_plainly,
    )
    from cg4ai.apps.runner import perform
    from cg4ai.extras import optional
    from cg4ai.parallel import as_they_come
    from cg4ai.settings import (
        MOST_UNITS,
        Checked,
        device_setting,
        hidden_setting,
        seed_setting,
        setting,
        threads_setting,
        time_limit_setting,
    )
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "cg4ai.apps.csv_tables": ["CsvTable", "listed", "read_csv"],
            "cg4ai.apps.folders": [
                "ALL_ARCS",
                "ARRAYS",
                "DESCRIPTION",
                "NOTES",
                "POSITIONS",
                "about_of",
                "asked_of",
                "check_application",
                "check_same",
                "complete",
                "trained",
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
                "Solved",
                "Solver",
                "Task",
                "Trained",
                "TrainedDefaults",
                "solve_plainly",
            ],
            "cg4ai.apps.runner": ["perform"],
            "cg4ai.extras": ["optional"],
            "cg4ai.parallel": ["as_they_come"],
            "cg4ai.settings": [
                "Checked",
                "MOST_UNITS",
                "device_setting",
                "hidden_setting",
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
    "POSITIONS",
    "Answers",
    "Application",
    "Checked",
    "CsvTable",
    "Evaluation",
    "Guarantee",
    "InputColumn",
    "Interface",
    "Proposition",
    "Rule",
    "RunSettings",
    "Signature",
    "Solved",
    "Solver",
    "Task",
    "Trained",
    "TrainedDefaults",
    "about_of",
    "as_they_come",
    "asked_of",
    "check_application",
    "check_same",
    "complete",
    "device_setting",
    "hidden_setting",
    "listed",
    "optional",
    "perform",
    "read_csv",
    "register",
    "seed_setting",
    "setting",
    "solve_plainly",
    "threads_setting",
    "time_limit_setting",
    "trained",
]


def _tabular() -> Any:
    from cg4ai.apps.tabular.app import APPLICATION

    return APPLICATION


register("train", kind="tabular", load=_tabular)
