"""A finished router that reads windows, as the commands ask it: matrices in order, splits out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cg4ai import Ensemble
from cg4ai.apps import (
    TIME,
    Answers,
    CsvTable,
    Interface,
    LastAnswer,
    LimitedOutputs,
    Proposition,
    Rule,
    Signature,
    TrainedDefaults,
)
from cg4ai.data import Array
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.members import ShieldedMembers
from cg4ai.routing.demands.history import SUMMARIES, summarise
from cg4ai.routing.demands.scaling import format_scaling_suffix
from cg4ai.routing.network.description import Router, describe_scaling, format_title
from cg4ai.routing.network.instance import Instance
from cg4ai.routing.operate.churn import ChurnLimit
from cg4ai.routing.train.history_problem import capacity_of_splits, load_at_corner
from cg4ai.rules import Linear

PARTS = ("last", "mean of the last three", "mean", "spread")  # of a summary of a window


def restore_history_router(
    made: Instance, record: Any, ensemble: Ensemble, churn: float | None = None
) -> HistoryRouter:
    """What a run's description says of it, or an error if that is damaged."""
    length = record.get("length") if isinstance(record, Mapping) else None
    if type(length) is not int or length < 1:
        raise RunFolderError(
            f"the run says of its history {record!r:.80}: restore it from a copy", code="altered"
        )
    sizes = (SUMMARIES * len(made.demand_names), len(made.paths))
    if sizes != (ensemble.input_size, ensemble.output_size):
        raise RunFolderError(
            f"the run reads windows in {sizes[0]} numbers and names {sizes[1]} paths, but its "
            f"mixture has {ensemble.input_size} and {ensemble.output_size}: restore it from a copy",
            code="altered",
        )
    shields = [
        part.members.shield for part in ensemble.used if isinstance(part.members, ShieldedMembers)
    ]
    if not shields:
        raise RunFolderError(
            "the members of the run have no shield, and splits for an unknown matrix need one: "
            "restore it from a copy",
            code="altered",
        )
    fixed = shields[0].anchor.outputs(torch.zeros(1, sizes[0], dtype=torch.float64))
    return HistoryRouter(made, length, fixed[0, 0].cpu().numpy(), churn)


@dataclass(frozen=True)
class HistoryRouter(TrainedDefaults):
    """Demands of successive matrices in, splits for the matrix after each out.

    A row has the last `length` matrices up to its own as its window. Where there are fewer, the
    earliest stands in for those before it, and the answer is the split `fixed` (P,), which fits the
    whole set. `bound_of_changes` is as of `Router`.
    """

    instance: Instance
    length: int
    fixed: Array
    bound_of_changes: float | None = None
    _router: Router = field(init=False, repr=False)  # of the same network: names of columns

    def __post_init__(self) -> None:
        object.__setattr__(self, "_router", Router(self.instance))

    @property
    def window(self) -> int:
        return self.length

    @property
    def first_answer(self) -> Array:
        return self.fixed

    @property
    def paths(self) -> dict[str, list[str]]:
        return self._router.paths

    @property
    def unproven(self) -> str:
        return (
            "nothing is known of how far answers are from the optimum: the matrix that they are "
            "for is still to come"
        )

    @property
    def without_fallback(self) -> str:
        return "the matrix that answers are for is still to come"

    def improve_answers(self, inputs: Array, outputs: Array, *, fallback: float) -> Answers | None:
        if fallback < np.inf:
            raise InvalidInput(
                "a fallback solves for the demands at hand, and this router splits a matrix that "
                "is still to come; leave out the fallback",
                code="unsupported",
            )
        return None

    @property
    def export_note(self) -> str:
        if self.churn is None:
            return ""
        return "the model is the router alone, without the bound on changes of cg4ai predict"

    @property
    def churn(self) -> float | None:
        return self.bound_of_changes

    def limit_changes(
        self,
        inputs: Array,
        outputs: Array,
        last: LastAnswer | None,
        *,
        churn: float,
        known: Sequence[Answers] = (),
    ) -> LimitedOutputs:
        """Splits (n, P), each held near the one before, and all of them fit the whole set."""
        made = self.instance
        limit = ChurnLimit(made, churn, corner=made.demand_max)
        recent = inputs[:, : len(made.demand_max)]
        return limit.limit(recent, outputs, last, names=tuple(self._router.paths))

    def interface(self) -> Interface:
        known = self._router.interface()
        made = self.instance
        title = (
            f"the router of {made.name}{describe_scaling(made)} for the matrix after the last "
            f"{self.length}: the share of {len(made.paths)} paths in their demands"
        )
        return Interface(title, known.inputs, known.outputs, known.region)

    def inputs(self, table: CsvTable) -> Array:
        vectors = self._router.inputs(table)
        padded = np.concatenate([np.repeat(vectors[:1], self.length - 1, axis=0), vectors])
        return summarise(padded, self.length)

    def read_history(self, file: Path) -> CsvTable:
        """The matrices of a traffic file as a table of demands, with a column of their times."""
        from cg4ai.routing.demands.traffic_files import read_traffic

        traffic = read_traffic(file)
        vectors = traffic.to_vectors(self.instance)
        cells = [
            [time, *map(repr, row)]
            for time, row in zip(traffic.times, vectors.tolist(), strict=True)
        ]
        names = (TIME, *self.instance.demand_names)
        return CsvTable(file, names, cells, list(range(1, len(cells) + 1)), unit="matrix")

    def outside(self, inputs: Array) -> NDArray[np.bool_]:
        """Windows whose last matrix lies outside the set: so may the next, for all that is known.

        The splits fit the whole set in any case.
        """
        return np.asarray(~self.instance.region.covers(inputs[:, : len(self.instance.demand_max)]))

    @property
    def outside_note(self) -> str:
        return (
            "every split fits all vectors of the set, and the next matrix may lie outside it as "
            "this one does, where nothing is guaranteed"
        )

    def predictions(
        self, inputs: Array, outputs: Array, *, details: bool
    ) -> list[dict[str, float]]:
        """The share of each path; with `details` what each link carries at most, over the set."""
        made = self.instance
        rows = self._router.predictions(inputs, outputs, details=False)
        if not details:
            return rows
        most = outputs @ load_at_corner(made).T
        of = format_scaling_suffix(made.capacity_factor)
        names = [f"utilisation at most {source}->{target}{of}" for source, target in made.arcs]
        named = (dict(zip(names, line, strict=True)) for line in most.tolist())
        return [{**row, **more} for row, more in zip(rows, named, strict=True)]

    @property
    def signature(self) -> Signature:
        known, made = self._router.signature, self.instance
        names = [f"{name}, {part}" for part in PARTS for name in made.demand_names]
        lower, upper = np.zeros(len(names)), np.tile(made.demand_max, SUMMARIES)
        return Signature("windows", names, known.gives, known.outputs, lower, upper)

    def explorer(self, ensemble: Ensemble, folder: Path, summary: Mapping[str, Any]) -> str:
        raise InvalidInput(
            "the page shows a router at demands that are moved by hand, and this one reads "
            "windows of matrices: there is no page of it",
            code="unsupported",
        )

    def rules(self, file: Path | None, table: CsvTable | None) -> list[Rule]:
        """Capacity on the whole set, at any window or at those of a table."""
        if file is not None:
            return self._router.rules(file, table)  # which refuses it
        rule, names = capacity_of_splits(self.instance), tuple(self._router.links)
        if table is None:
            return [Rule(rule, (), names=names)]
        listed = Linear(
            self.inputs(table), rule.coefficients[None], rule.bound, "<=", name=rule.name
        )
        return [Rule(listed, (), table, np.arange(len(table)), names=names)]

    def get_own_rules(self, table: CsvTable) -> list[Rule]:
        return self.rules(None, None)

    def propositions(self) -> list[Proposition]:
        made = self.instance
        return [
            Proposition(
                capacity_of_splits(made),
                f"{format_title(made)}, for the next of a window",
                [f"{link} at every vector of the set" for link in self._router.links],
                self.signature.inputs,
            )
        ]

    def read_added_rules(self, file: Path, table: CsvTable | None) -> list[Rule]:
        return self._router.read_added_rules(file, table)

    def files(self, file: Path) -> list[Path]:
        return [file]

    def export_agents(self, ensemble: Ensemble, folder: Path) -> list[str]:
        raise InvalidInput(
            "a router that reads windows of all demands cannot be taken apart, node by node",
            code="unsupported",
        )
