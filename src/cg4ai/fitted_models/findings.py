"""What an audit of a model found, rule by rule, in words, as JSON and as certificates."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cg4ai.errors import InvalidInput
from cg4ai.fitted_models.model import FittedModel
from cg4ai.proofs.records import Status
from cg4ai.records import Array
from cg4ai.runs import files

SHOWN = 8  # features of a counterexample that are printed
FINITE = "finite numbers only; missing values are not judged"


@dataclass(frozen=True, eq=False)
class RuleFinding:
    """Whether the model keeps one rule.

    proven: at every input of `place`, for the exact sums of the numbers that the model stores; the
    independent checker has accepted `certificate`. refuted: at `inputs` (k, d) the library itself
    predicts `outputs` (k, r), which break the rule by `missed`. unknown: neither was found;
    `bound` is a proven limit of how far the rule can be missed (infinite where none is known).
    `missed` and `bound` are about `measure`. `rounding` is what the library's own sums may differ
    by from exact ones.
    """

    rule: str
    status: Status
    place: str
    missed: float = 0.0
    bound: float = math.inf
    inputs: Array | None = None
    outputs: Array | None = None
    measure: str = "predictions"
    note: str = ""
    rounding: float = 0.0
    seconds: float = 0.0
    certificate: bytes = field(default=b"", repr=False)

    def as_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "status": self.status,
            "place": self.place,
            "missed": self.missed,
            "bound": self.bound if math.isfinite(self.bound) else None,
            "measure": self.measure,
            "inputs": None if self.inputs is None else self.inputs.tolist(),
            "outputs": None if self.outputs is None else self.outputs.tolist(),
            "rounding": self.rounding,
            "note": self.note,
            "seconds": round(self.seconds, 3),
            "certificate_sha256": self.digest,
        }

    @property
    def digest(self) -> str | None:
        """The SHA-256 that `cg4ai check` prints of the certificate."""
        if not self.certificate:
            return None
        return hashlib.sha256(self.certificate.partition(b"\n")[2]).hexdigest()

    def headline(self) -> str:
        if self.status == "proven":
            return f"PROVEN   {self.rule}: at every input of {self.place}"
        if self.status == "refuted":
            return f"REFUTED  {self.rule}: missed by {self.missed:.6g} ({self.measure})"
        most = f"at most {self.bound:.6g}" if math.isfinite(self.bound) else "an unknown amount"
        return f"UNKNOWN  {self.rule}: missed by {most} ({self.measure}) at {self.place}"


@dataclass(frozen=True, eq=False)
class ModelAudit:
    """The findings of `audit_model`, in the order of the rules."""

    model: FittedModel
    findings: tuple[RuleFinding, ...]

    @property
    def holds(self) -> bool:
        """Whether every rule is proven."""
        return all(one.status == "proven" for one in self.findings)

    @property
    def refuted(self) -> tuple[RuleFinding, ...]:
        return tuple(one for one in self.findings if one.status == "refuted")

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.model.words,
            "holds": self.holds,
            "inputs": FINITE,
            "findings": [one.as_json() for one in self.findings],
        }

    def write_certificates(self, path: str | Path) -> list[Path]:
        """Write those of proven rules: `path`, then `name.2.cg4ai` and so on; returns the files."""
        path = Path(path)
        proven = [one for one in self.findings if one.certificate]
        if not proven:
            raise InvalidInput("no rule is proven, so there is no certificate", code="not-proven")
        written = []
        for number, one in enumerate(proven, start=1):
            name = path if number == 1 else path.with_name(f"{path.stem}.{number}{path.suffix}")
            files.write_bytes(name, one.certificate)
            written.append(name)
        return written

    def __str__(self) -> str:
        lines = [one.headline() for one in self.findings]
        lines += ["", f"Model: {self.model.words}.", f"Judged: {FINITE}."]
        for one in self.findings:
            if one.status == "refuted":
                lines += _counterexample(one, self.model)
            elif one.note:
                lines.append(f"{one.rule}: {one.note}.")
        proven = [one for one in self.findings if one.status == "proven"]
        if proven:
            lines.append(
                "Proofs are about exact sums of the numbers that the model stores, accepted by the "
                "independent checker; sums as the library rounds them may differ by up to "
                f"{max(one.rounding for one in proven):.2g}."
                if self.model.is_trees
                else "Proofs are about float64 predictions of the stored weights, accepted by the "
                "independent checker; a library that computes in float32 rounds further."
            )
        return "\n".join(lines)


def _counterexample(one: RuleFinding, model: FittedModel) -> list[str]:
    if one.inputs is None or one.outputs is None:
        return []
    lines = [f"{one.rule}: {one.note}." if one.note else f"{one.rule}: broken, for example, here."]
    same = (one.inputs == one.inputs[0]).all(axis=0)
    moving = [j for j in range(len(same)) if not same[j]]
    for x, y in zip(one.inputs, one.outputs, strict=True):
        where = _values(x, moving, model.features) if moving else ""
        said = ", ".join(f"{value!r}" for value in y.tolist()[:4])
        lines.append(f"  {where + ': ' if where else ''}the library predicts {said}")
    rest = [j for j in range(len(same)) if same[j]]
    shown = _values(one.inputs[0], rest[:SHOWN], model.features)
    more = f" and {len(rest) - SHOWN} more (--json has all)" if len(rest) > SHOWN else ""
    return [*lines, f"  at {shown}{more}"] if rest else lines


def _values(x: Array, columns: Sequence[int], names: Sequence[str]) -> str:
    return ", ".join(f"{names[j]}={float(x[j])!r}" for j in columns)
