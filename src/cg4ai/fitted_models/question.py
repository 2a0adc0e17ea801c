"""What is asked of a model for one rule: where, how long, and when a miss counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cg4ai.clock import now
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.errors import InvalidInput
from cg4ai.fitted_models.findings import RuleFinding
from cg4ai.fitted_models.model import FittedModel
from cg4ai.layout import Layout
from cg4ai.members.mixture import Part
from cg4ai.proofs.records import Status
from cg4ai.records import Array
from cg4ai.rules.regions import Region
from cg4ai_checker import Rejected, verdict


@dataclass(frozen=True, eq=False)
class Question:
    """`region` None is everywhere; `data` (n, d) are rows to start searches from, or none."""

    model: FittedModel
    rule: str
    region: Region | None
    data: Array
    until: float
    tolerance: float
    started: float

    @property
    def place(self) -> str:
        return self.model.everywhere if self.region is None else str(self.region)

    @property
    def ends(self) -> tuple[Array, Array]:
        """The box of the region, or around it."""
        if self.region is None:
            end = np.full(self.model.input_size, self.model.largest)
            return -end, end
        return self.region.bounds()

    @cached_property
    def ensemble(self) -> Ensemble:
        """The model as an ensemble of one member, which proofs know."""
        part = Part(self.model.members, np.zeros(1, np.int64), np.ones(1))
        return Ensemble(
            (part,),
            Layout.single(self.model.output_size),
            about={"features": list(self.model.features), "outputs": list(self.model.outputs)},
        )

    @property
    def title(self) -> str:
        return self.model.words[:200]

    def require_region(self) -> Region:
        if self.region is None:
            raise InvalidInput(
                f"{self.rule} of this model can be judged over a region only; give "
                "region=Box(lower, upper), or data whose range is meant",
                code="missing-argument",
            )
        return self.region

    def contains(self, inputs: Array) -> bool:
        return self.region is None or bool(self.region.contains(inputs).all())

    def answer(
        self,
        status: Status,
        *,
        missed: float = 0.0,
        bound: float = np.inf,
        inputs: Array | None = None,
        measure: str = "predictions",
        note: str = "",
        certificate: bytes = b"",
        place: str = "",
    ) -> RuleFinding:
        outputs = None if inputs is None else self.model.predict(inputs)
        return RuleFinding(
            self.rule,
            status,
            place or self.place,
            float(missed),
            0.0 if status == "proven" else float(bound),
            inputs,
            outputs,
            measure,
            note,
            self.model.rounding,
            now() - self.started,
            certificate,
        )

    def answer_proven(self, certificate: bytes, *, place: str = "") -> RuleFinding:
        """Proven if the checker says so, too."""
        try:
            verdict(certificate)
        except Rejected as error:
            return self.answer("unknown", note=f"the checker rejects the proof: {error}")
        return self.answer("proven", certificate=certificate, place=place)
