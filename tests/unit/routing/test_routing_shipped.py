"""`check --run` of routers: a folder that could be read as another network is not accepted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.saved import load
from cg4ai.errors import RunFolderError
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers
from cg4ai.members.mixture import Part
from cg4ai.proofs import certify
from cg4ai.proofs.certificate import write_certificate
from cg4ai.records import Array
from cg4ai.routing import Instance, anchor, instance
from cg4ai.routing.network.description import describe_instance, restore_instance
from cg4ai.routing.settings import Recipe
from cg4ai.routing.train.problem import capacity
from cg4ai_checker import Rejected, check
from cg4ai_checker.run_folder import compare
from raising import raises

Description = dict[str, Any]


def small(**limits: Any) -> Instance:
    """Nodes named by digits; two demands of node 1, with two or three paths each."""
    graph = networkx.DiGraph(name="small", demands={"1": {"4": 4.0, "5": 2.0}})
    for source, target in ("12", "13", "14", "24", "34", "45", "25", "35"):
        graph.add_edge(source, target, capacity=5.0, length=1.0)
    return instance(graph, 2, 3, load=0.9, **limits)


def said_of(folder: Path, made: Instance, split: Array, about: Description) -> list[str]:
    """What is found of a router that always splits so, proven for `made`, described by `about`."""
    members = ConstantMembers(split[None], len(made.demand_max))
    part = Part(members, np.zeros(1, np.int64), np.ones(1))
    names = {"application": "routing", **about}
    router = Ensemble((part,), Layout.single(len(split)), about=names)
    rule = capacity(made, Recipe())
    answer = certify(router, rule)
    assert answer.status == "proven"
    write_certificate(folder / "file", router, requirement=rule, certification=answer)
    router.save(folder)
    return compare(check(folder / "file").claim, folder)


def safe_split(made: Instance) -> Array:
    return anchor(made, made.sample(20, 0))


def with_link(made: Instance, arc: tuple[Any, Any], path: int | None = None) -> Instance:
    """One link more, which one path at most goes over."""
    column = np.zeros((len(made.paths), 1))
    if path is not None:
        column[path] = 1.0
    return replace(
        made,
        arcs=[*made.arcs, arc],
        capacity=np.append(made.capacity, 100.0),
        incidence=np.hstack([made.incidence, column]),
    )


@pytest.mark.parametrize("limits", [{}, {"least": 0.1}, {"hose": 0.8}, {"least": 0.1, "hose": 0.8}])
def test_sets_of_demands_of_every_kind_are_accepted(limits: Any, tmp_path: Path) -> None:
    made = small(**limits)
    said = said_of(tmp_path, made, safe_split(made), describe_instance(made))
    assert "capacities of the network" in said[-1]


def refused(folder: Path, made: Instance, about: Description, words: str) -> None:
    """By the checker, and by what loads a folder."""
    with pytest.raises(Rejected, match=words):
        said_of(folder, made, safe_split(made), about)
    load(folder)  # the mixture itself is as it was
    with raises(RunFolderError, "bad-file", "network"):
        restore_instance(about)


def test_names_of_nodes_that_are_no_texts_are_refused(tmp_path: Path) -> None:
    """As texts, both names are of one link, and all loads would be those of the second."""
    made = small()
    source, target = made.arcs[0]
    more = with_link(made, (int(source), int(target)))
    refused(tmp_path, more, describe_instance(more), "must be text")


def test_links_named_twice_are_refused(tmp_path: Path) -> None:
    made = small()
    more = with_link(made, made.arcs[0])
    refused(tmp_path, more, describe_instance(more), "a link twice")


def test_a_path_that_goes_over_a_link_twice_is_refused(tmp_path: Path) -> None:
    """Its volume would be counted once."""
    made = small()
    number, path = next((n, one) for n, one in enumerate(made.paths) if len(one) > 2)
    more = with_link(made, (path[1], path[0]), number)
    paths = list(made.paths)
    paths[number] = (*path[:2], *path)
    more = replace(more, paths=paths)
    refused(tmp_path, more, describe_instance(more), "a node twice")


def with_kind(kind: str) -> Callable[[Description], None]:
    def change(record: Description) -> None:
        record["kind"] = kind

    return change


@pytest.mark.parametrize(
    "change",
    [
        with_kind("box"),
        with_kind("ball"),
        lambda one: one.pop("kind"),
        lambda one: one.pop("limit"),
    ],
)
def test_a_set_of_demands_that_is_said_otherwise_is_refused(change: Any, tmp_path: Path) -> None:
    """Of a box with the limits of a polytope the loader took the box, the checker the limits."""
    made = small(hose=0.8)
    about = describe_instance(made)
    change(about["demand_set"])
    refused(tmp_path, made, about, "set of demands")


def test_shares_below_zero_are_rejected_though_loads_are_within_capacities(tmp_path: Path) -> None:
    made = small()
    split = safe_split(made)
    own = made.blocks[0]
    split[own] = np.eye(len(own))[0] * 2 - np.eye(len(own))[1]
    large = replace(made, capacity=made.capacity * 5)
    assert np.bincount(made.path_demand, split) == pytest.approx(1)
    with raises(Rejected, "range"):
        said_of(tmp_path, large, split, describe_instance(large))
