"""What an application must be able to do, how every one is run, and the application of tables.

`register` makes an application of another package known; see `cg4ai.apps.registry`.
"""

from typing import Any

from cg4ai.apps.registry import register

__all__ = ["register"]


def _tabular() -> Any:
    from cg4ai.apps.tabular.app import APPLICATION

    return APPLICATION


register("train", kind="tabular", load=_tabular)
