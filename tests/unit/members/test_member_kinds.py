"""The table of kinds: each entry leads to the class of that kind, imported when it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cg4ai.members.kinds import MODULES, STACKS, WRAPPERS
from cg4ai.members.wrappers import WrappedMembers
from cg4ai.protocols import MemberDefaults


@pytest.mark.parametrize("kind", [*STACKS, *MODULES, *WRAPPERS])
def test_each_kind_leads_to_its_class(kind: str) -> None:
    found = (STACKS | MODULES | WRAPPERS)[kind].load()
    assert found.kind == kind
    assert issubclass(found, WrappedMembers if kind in WRAPPERS else MemberDefaults)


def test_every_kind_is_in_the_table() -> None:
    from cg4ai import members

    made = [getattr(members, name) for name in members.__all__]
    kinds = [one for one in made if isinstance(one, type) and issubclass(one, MemberDefaults)]
    named = {one.kind for one in kinds if isinstance(vars(one).get("kind"), str)}  # type: ignore[attr-defined]
    assert named == {*STACKS, *MODULES, *WRAPPERS}


def test_nothing_is_loaded_before_it_is_restored() -> None:
    code = (
        "import sys, cg4ai.members.kinds; "
        "print([name for name in ('trees', 'flows', 'networks', 'modules') "
        "if f'cg4ai.members.{name}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
