"""A shielded ensemble as proofs see it: whatever is predicted, the anchor must keep the rules.

At each input the outputs that keep the rules are a convex set. A shield moves outputs towards its
anchor until they are in that set, which the anchor must be in itself; and mixtures of outputs in
the set stay in it. So a proof about the anchor is one about the ensemble.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.shield import ShieldedEnsemble
from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.mixture import Part
from cg4ai.members.shielded import ShieldedMembers
from cg4ai.proofs.records import Certification
from cg4ai.proofs.rule_forms import ProofRules
from cg4ai.rules.guards import Guard
from cg4ai.rules.regions import Region

Of = Literal["members", "mixture"]


@dataclass(frozen=True)
class ShieldSubject:
    """Which outputs are moved, those of every member or of the mixture, and towards what.

    `together` are outputs that are moved as one and may have a sum to keep.
    """

    of: Of
    anchor: Ensemble
    guards: tuple[Guard, ...]
    together: tuple[tuple[int, ...], ...] = ()

    def describe_shield(self, rules: ProofRules, region: Region) -> dict[str, Any]:
        """What a certificate says of the shield; refuses rules that it does not keep there."""
        place = region.record()
        found = [
            one
            for one in self.guards
            if one.rules.digest == rules.digest and one.region.record() == place
        ]
        if not found:
            raise InvalidInput(
                f"the shield keeps {', '.join(one.name for one in self.guards)}, and none of these "
                f"is the rule to be proven, with its limits, over {region}: certify what the "
                "shield keeps, or ensemble.unshielded if that is a mixture of plain members",
                code="conflict",
            )
        beyond = all(one.everywhere for one in found)
        return {"of": self.of} | ({"everywhere": True} if beyond else {})

    def build_answer(self, found: Certification) -> Certification:
        """What is known of the anchor, as an answer about the shielded ensemble.

        An anchor that breaks a rule refutes no prediction: it only leaves them without a proof.
        """
        if found.status == "unknown" and found.exhausted:
            more = "take another anchor, with room"
            return replace(
                found, shield=self.of, note=f"of the shield's anchor: {found.note}, or {more}"
            )
        if found.status != "refuted" or found.counterexample is None:
            return replace(found, shield=self.of)
        place = ", ".join(f"{value:.6g}" for value in found.counterexample[:6])
        more = ", ..." if len(found.counterexample) > 6 else ""
        return replace(
            found,
            status="unknown",
            rules=tuple(
                replace(proof, status="unknown" if proof.status == "refuted" else proof.status)
                for proof in found.rules
            ),
            note=f"the anchor of the shield breaks rule {found.counterexample_rule}: it reaches "
            f"{found.counterexample_value:.9g} at x = [{place}{more}]; take another anchor",
            counterexample=None,
            counterexample_rule=None,
            counterexample_value=None,
            violations={},
            exhausted=True,
            shield=self.of,
        )


def find_shield(ensemble: Ensemble) -> ShieldSubject | None:
    """What shields this ensemble; None if nothing does."""
    if isinstance(ensemble, ShieldedEnsemble):
        blocks = tuple(tuple(block.tolist()) for block in ensemble.layout.blocks)
        return ShieldSubject("mixture", ensemble.anchor, ensemble.guards, blocks)
    stacks = [part.members for part in ensemble.used]
    behind = [members for members in stacks if isinstance(members, ShieldedMembers)]
    if not behind:
        return None
    shield = behind[0].shield
    if len(behind) < len(stacks) or any(m.shield.digest != shield.digest for m in behind):
        raise InvalidInput(
            "some members are behind a shield and others are not, or behind another one; a proof "
            "needs all of them behind the same: wrap the others in ShieldedMembers",
            code="unsupported",
        )
    if len(ensemble.layout) > 1 or shield.anchor.output_size != ensemble.output_size:
        raise InvalidInput(
            f"shielded members have {shield.anchor.output_size} outputs and stand in "
            f"{len(ensemble.layout)} blocks; a proof needs one block of all {ensemble.output_size}",
            code="unsupported",
        )
    alone = Part(shield.anchor, np.zeros(1, np.int64), np.ones(1))
    anchor = Ensemble((alone,), Layout.single(ensemble.output_size))
    return ShieldSubject("members", anchor, shield.guards, shield.coupled)
