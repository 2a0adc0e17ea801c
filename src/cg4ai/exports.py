"""Public names of a package, each imported from its module when it is first used."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

REMOVED_IN = "0.9"


def lazy_exports(
    package: str,
    homes: Mapping[str, Sequence[str]],
    *,
    submodules: Sequence[str] = (),
    shown: Sequence[str] = (),
    moved: Mapping[str, Sequence[str | tuple[str, str]]] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose names live in the modules of `homes`.

    `homes` maps each module to the names that it gives. `dir` shows these, the `submodules` and
    what else is `shown`. `moved` maps the new public home of names that left this package to
    them, as (former, new) where the name changed, too: they are still found, with a
    DeprecationWarning.
    """
    home_of = {name: module for module, names in homes.items() for name in names}
    new_home_of: dict[str, tuple[str, str]] = {}
    for home, left in (moved or {}).items():
        for one in left:
            former, new = (one, one) if isinstance(one, str) else one
            new_home_of[former] = (home, new)

    def find(name: str) -> Any:
        if name in home_of:
            value = getattr(import_module(home_of[name]), name)
            setattr(sys.modules[package], name, value)
            return value
        if name in submodules:
            return import_module(f"{package}.{name}")
        if name in new_home_of:
            home, new = new_home_of[name]
            warnings.warn(
                f"{package}.{name} has moved and will be removed in {REMOVED_IN}: "
                f"use `from {home} import {new}`",
                DeprecationWarning,
                stacklevel=2,
            )
            return getattr(import_module(home), new)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted([*home_of, *submodules, *shown])

    return find, names
