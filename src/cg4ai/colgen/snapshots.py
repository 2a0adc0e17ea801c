"""A workspace, and the parts of a problem that remember something, as plain data and back.

A run that keeps checkpoints also continues from each one it writes, through the same code as a
resumed run, so that both end with the same result bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.colgen.master import LinearMaster
from cg4ai.colgen.master.convex import ConvexMaster
from cg4ai.colgen.pricing.defaults import iterate_pricers
from cg4ai.colgen.restricted_master import Workspace
from cg4ai.compile.compiled import CompiledProblem
from cg4ai.compile.problem import iterate_parts
from cg4ai.errors import RunFolderError
from cg4ai.members import restore as restore_members
from cg4ai.protocols import Stateful
from cg4ai.records import MemberState, PartState, select_prefixed
from cg4ai.rules.rows import ConcaveRows, LinearRows, Rows
from cg4ai.settings import Settings


@dataclass(frozen=True, slots=True)
class Snapshot:
    """JSON-able `meta`, named `arrays`, and the stacks of members."""

    meta: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    members: Sequence[MemberState]


def take(work: Workspace) -> Snapshot:
    """The whole state of a workspace between two iterations."""
    arrays: dict[str, NDArray[Any]] = {}
    if work.scenarios is not None:
        own = work.scenarios.own
        arrays["scenarios.inputs"] = work.scenarios.inputs[own:]
        arrays["scenarios.levels"] = work.scenarios.levels[own:]
        arrays["scenarios.in_master"] = work.scenarios.in_master
    batches = []
    for number, (batch, sizes) in enumerate(work.sized_batches()):
        batches.append({"linear": batch.linear, "requirement": batch.requirement})
        arrays.update(_row_arrays(batch, f"rows{number}."))
        arrays[f"rows{number}.sizes"] = sizes
        if number in work.tangents.source:
            arrays[f"rows{number}.source"] = work.tangents.source[number]
    curved = []
    for number, batch in enumerate(work.tangents.batches):
        curved.append({"linear": False, "requirement": batch.requirement})
        arrays.update(_row_arrays(batch, f"curved{number}."))
    arrays["curved.sizes"], arrays["curved.slack"] = work.tangents.sizes, work.tangents.slack
    for number, stack in enumerate(work.columns.stacks):
        arrays[f"stack{number}.blocks"] = stack.blocks
        arrays[f"stack{number}.numbers"] = stack.numbers
    master = work.master
    arrays.update({f"master.{name}": value for name, value in master.state().items()})
    if isinstance(master, ConvexMaster):
        arrays["table"] = master.coefficients
        arrays["bounds"] = master.bounds
        arrays["slack"] = master.slack_numbers
    meta = {
        "batches": batches,
        "curved": curved,
        "notes": work.notes,
        "rules_bound": work.rules_bound,
    }
    return Snapshot(meta, arrays, [stack.members.state() for stack in work.columns.stacks])


def restore(snapshot: Snapshot, problem: CompiledProblem, settings: Settings) -> Workspace:
    """A workspace that continues exactly like the one the snapshot was taken of."""
    work = Workspace(problem, settings)
    arrays = snapshot.arrays
    try:
        work.notes = list(snapshot.meta["notes"])
        work.rules_bound = bool(snapshot.meta["rules_bound"])
        if work.scenarios is not None:
            levels = arrays["scenarios.levels"]
            work.scenarios.extend(arrays["scenarios.inputs"], levels, None)
            work.scenarios.in_master = arrays["scenarios.in_master"].copy()
        for number, entry in enumerate(snapshot.meta["batches"]):
            rows = _restored_rows(entry, arrays, f"rows{number}.", work)
            work.restore_rows(rows, arrays[f"rows{number}.sizes"].copy())
            if f"rows{number}.source" in arrays:
                work.tangents.source[number] = arrays[f"rows{number}.source"].copy()
            else:
                work.remember(rows)
        _restore_curved(work, snapshot)
        _restore_columns(work, snapshot, problem)
        state = select_prefixed(arrays, "master.")
        if isinstance(work.master, LinearMaster):
            work.master = LinearMaster.restore(state)
        else:
            blocks = work.columns.blocks
            outputs = work.columns.outputs(problem.objective.inputs)
            work.master.add_columns(outputs.cpu(), blocks, np.zeros((0, len(blocks))))
            work.master.add_rows(arrays["table"], arrays["bounds"], arrays["slack"])
            work.master.restore(state)
    except KeyError as error:
        raise RunFolderError(
            f"the checkpoint lacks {error}: it is of an earlier version of cg4ai, or not whole; "
            "train anew into another folder",
            code="version",
        ) from error
    if work.scenarios is not None and len(work.columns):
        work.scenarios.outputs = work.columns.outputs(work.scenarios.inputs)
    return work


def _restore_curved(work: Workspace, snapshot: Snapshot) -> None:
    arrays, start = snapshot.arrays, 0
    for number, entry in enumerate(snapshot.meta["curved"]):
        rows = _restored_rows(entry, arrays, f"curved{number}.", work)
        if not isinstance(rows, ConcaveRows):
            raise RunFolderError(
                "the checkpoint has tangents of rows that are linear now", code="altered"
            )
        part = slice(start, start + len(rows))
        work.tangents.add(rows, arrays["curved.sizes"][part], arrays["curved.slack"][part])
        work.remember(rows)
        start += len(rows)


def _restore_columns(work: Workspace, snapshot: Snapshot, problem: CompiledProblem) -> None:
    factories: dict[str, Any] = {one.name: one for one in problem.kept}
    for pricer in problem.pricers:
        for one in iterate_pricers(pricer):
            factories |= one.factories()
    for members, _ in problem.start:
        factories |= members.factories()
    for number, state in enumerate(snapshot.members):
        work.columns.restore_stack(
            restore_members(state, factories),
            snapshot.arrays[f"stack{number}.blocks"].copy(),
            snapshot.arrays[f"stack{number}.numbers"].copy(),
        )


def _row_arrays(rows: Rows, prefix: str) -> dict[str, NDArray[Any]]:
    kept: dict[str, NDArray[Any] | None] = {
        "inputs": rows.inputs,
        "bounds": rows.bounds,
        "origin": rows.origin,
    }
    if isinstance(rows, LinearRows):
        kept |= {"coefficients": rows.coefficients, "index": rows.index, "mixing": rows.mixing}
    else:
        kept |= {"positions": rows.positions}
    return {prefix + name: value for name, value in kept.items() if value is not None}


def _restored_rows(
    entry: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], prefix: str, work: Workspace
) -> Rows:
    """Rows as the master has them: scaled."""
    problem = work.problem

    def get(name: str) -> Any:
        value = arrays.get(prefix + name)
        return None if value is None else value.copy()

    def get_copy(name: str) -> Any:
        return arrays[prefix + name].copy()

    number = int(entry["requirement"])
    if number >= len(problem.requirements):
        raise RunFolderError(
            f"the checkpoint has rows of requirement {number}, the problem has "
            f"{len(problem.requirements)} now; resume with the same requirements",
            code="altered",
        )
    inputs, bounds, origin = get_copy("inputs"), get_copy("bounds"), get("origin")
    if entry["linear"]:
        made = get_copy("coefficients"), bounds, get("index"), get("mixing"), origin
        return LinearRows(number, inputs, *made)
    requirement = problem.requirements[number]
    listed = requirement.rows(number)
    if listed is None:
        listed = requirement.rows_at(inputs[:1], np.zeros(1, np.int64), number)
    if not isinstance(listed, ConcaveRows):
        raise RunFolderError(
            f"the checkpoint's requirement {number} is of another kind now", code="altered"
        )
    functional = listed.scale(work.compute_size(number).scale).functional
    return replace(
        listed,
        inputs=inputs,
        functional=functional,
        bounds=bounds,
        positions=get_copy("positions"),
        origin=origin,
    )


def find_stateful_parts(parts: Mapping[str, object]) -> dict[str, Stateful]:
    """The parts, within their wrappers, whose state a checkpoint must hold."""
    return {
        key: one
        for name, part in parts.items()
        for key, one in iterate_parts(part, name)
        if isinstance(one, Stateful)
    }


def collect_states(parts: Mapping[str, Stateful]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The JSON values of each part, and all their arrays under names of their own."""
    states = {key: part.state() for key, part in parts.items()}
    values = {key: dict(state.values) for key, state in states.items()}
    arrays = {
        f"part {key} {name}": array
        for key, state in states.items()
        for name, array in state.arrays.items()
    }
    return values, arrays


def restore_states(
    parts: Mapping[str, Stateful], values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Restore each part from what `collect_states` gave."""
    for key, part in parts.items():
        own = {
            name: array.copy() for name, array in select_prefixed(arrays, f"part {key} ").items()
        }
        part.restore(PartState(values[key], own))
