"""A model card: what a finished run is, its inputs and outputs, and what its rules guarantee.

Plain data for pages and servers, taken from the run's own files; no path of this machine is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cg4ai import __version__
from cg4ai.apps.folders import find_application
from cg4ai.apps.patches import CERTIFICATES
from cg4ai.apps.predictions import RunPredictor
from cg4ai.apps.protocol import Guarantee, Interface
from cg4ai.ensemble.audit import LISTED_ONLY
from cg4ai.ensemble.claims import WEAKEST_FIRST, compute_mixture_digest
from cg4ai.ensemble.ensemble import GUARANTEES, Ensemble
from cg4ai.ensemble.shield import find_anchor_checks
from cg4ai.ensemble.verdict import STRENGTHS
from cg4ai.errors import RunFolderError
from cg4ai.records import Strength
from cg4ai.report.wording import finding_of
from cg4ai.runs import files
from cg4ai.runs.folder import Run
from cg4ai_checker.file import FIRST_LINE

FIRST_BYTES = 200  # of a certificate: its first line, which states its digest


@dataclass(frozen=True)
class Certificate:
    """A proof in the run's folder, with the digest that its first line states."""

    file: str
    sha256: str


@dataclass(frozen=True)
class ModelCard:
    """What a finished run is; `model` is the SHA-256 of its file ensemble.json."""

    model: str
    application: str
    interface: Interface
    members: int
    created: str
    guarantees: tuple[Guarantee, ...]
    certificates: tuple[Certificate, ...]
    version: str = __version__

    @property
    def example(self) -> dict[str, Any]:
        """A row inside the region, to try predictions with."""
        return {one.name: one.example for one in self.interface.inputs}

    @property
    def sentence(self) -> str:
        """What is guaranteed, in one sentence."""
        kept = [
            f"{one.rule} ({one.strength}{', ' + LISTED_ONLY if one.doubtful else ''})"
            for one in self.guarantees
            if one.holds
        ]
        broken = [one.rule for one in self.guarantees if not one.holds]
        if not kept and not broken:
            return "No rule is known to hold, so nothing is guaranteed."
        parts = [("NOT KEPT", broken), ("Kept", kept)]
        return " ".join(f"{words}: {', '.join(rules)}." for words, rules in parts if rules)

    def as_data(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "title": self.interface.title,
            "application": self.application,
            "model": self.model,
            "version": self.version,
            "created": self.created,
            "members": self.members,
            "inputs": [files.to_jsonable(one) for one in self.interface.inputs],
            "outputs": list(self.interface.outputs),
            "region": self.interface.region,
            "guarantee": self.sentence,
            "rules": [
                {**files.to_jsonable(one), "meaning": describe_strength(one)}
                for one in self.guarantees
            ],
            "certificates": [files.to_jsonable(one) for one in self.certificates],
        }


def describe_strength(one: Guarantee) -> str:
    """What the strength of a guarantee says, whatever the rule."""
    return STRENGTHS[Strength(one.strength)] if one.strength in map(str, STRENGTHS) else ""


def card_of(folder: Path, predictor: RunPredictor) -> ModelCard:
    """The card of the run in a folder, which the predictor was loaded from."""
    run = Run.open(folder, read_only=True) if (folder / "run.json").exists() else None
    home = str(predictor.ensemble.about["application"])
    return ModelCard(
        model=predictor.digest,
        application=home if run is None else run.command,
        interface=predictor.described.interface(),
        members=len(predictor.ensemble),
        created="" if run is None else str(run.header.get("created", "")),
        guarantees=tuple(_guarantees(run, predictor.ensemble)),
        certificates=tuple(list_certificates(folder, run)),
    )


def _guarantees(run: Run | None, ensemble: Ensemble) -> list[Guarantee]:
    """Those of the run's summary; before its end, and without a run, what is recorded."""
    summary = None if run is None else run.summary()
    if run is None or summary is None or not run.bound:
        return list_recorded_guarantees(ensemble)
    try:
        if "evaluation_s" in summary:
            findings = find_application(run.command).story(summary).findings
        else:  # a patched run's
            findings = tuple(map(finding_of, summary["audits"]))
        return [one.guarantee for one in findings]
    except (AttributeError, KeyError, TypeError, ValueError):
        return list_recorded_guarantees(ensemble)  # of an earlier version, or interrupted


def list_recorded_guarantees(ensemble: Ensemble) -> list[Guarantee]:
    """What is known from the ensemble alone: rules of its shields, and claims about its members."""
    own, checks = compute_mixture_digest(ensemble), find_anchor_checks(ensemble)
    found = {one.name: Strength.SHIELDED for one in ensemble.guards if checks[one.key].exact}
    for claim in ensemble.about.get(GUARANTEES, []):
        # at how many of the listed inputs a rule is kept says little without the others
        if claim["mixture"] == own and claim["strength"] != Strength.AUDITED:
            strength, name = Strength(claim["strength"]), str(claim["requirement"])
            found[name] = max(strength, found.get(name, strength), key=WEAKEST_FIRST.index)
    return [Guarantee(name, True, str(one), STRENGTHS[one]) for name, one in found.items()]


def list_certificates(folder: Path, run: Run | None) -> list[Certificate]:
    """The certificates in a run's folder that its summary names, with their digests."""
    summary = None if run is None or not run.bound else run.summary()
    named = _digests_of(summary or {})
    found = []
    for path in sorted(folder.glob(CERTIFICATES)):
        stated = FIRST_LINE.match(files.read_bytes(path)[:FIRST_BYTES])
        if stated is None:
            raise RunFolderError(f"{path} is not a certificate: its first line states no digest")
        if stated[1].decode() in named:
            found.append(Certificate(path.name, stated[1].decode()))
    return found


def _digests_of(summary: Mapping[str, Any]) -> set[str]:
    """The digests of all certificates that a summary names, its own or those of its rules."""
    audits = summary.get("audits", [])
    entries = [summary, *(one for one in audits if isinstance(one, dict))]
    named = [one.get("certificate") for one in entries if isinstance(audits, list)]
    return {str(one.get("sha256")) for one in named if isinstance(one, dict)}
