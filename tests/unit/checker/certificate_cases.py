"""Small mixtures, rules and hand-made certificates for the tests of the checker.

Predictions come from the ensemble itself (torch), which shares no code with the checker.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import ConstantMembers, NetworkArchitecture, NetworkMembers, TreeMembers
from cg4ai.members.mixture import Part
from cg4ai.proofs import AffineCoefficients, Certification, OpenCells, RuleProof, find_affine_rules
from cg4ai.proofs.certificate import build_certificate
from cg4ai.proofs.structure_certificates import seal_arrays
from cg4ai.rules import Linear
from cg4ai.rules.regions import Box
from cg4ai_checker.claim import Claim
from cg4ai_checker.file import parse_certificate


@dataclass(frozen=True)
class AffineRules:
    """Rules with coefficients `constant[l, k] + slope[l, k] . x`, as a functional."""

    constant: np.ndarray
    slope: np.ndarray

    @property
    def count(self):
        return len(self.constant)

    def values(self, inputs, outputs):
        import torch

        a = torch.as_tensor(self.constant) + torch.einsum(
            "lkd,nd->nlk", torch.as_tensor(self.slope), inputs
        )
        return torch.einsum("nlk,...nk->...nl", a, outputs)

    def coefficients(self, inputs, which):
        return self.constant[which] + np.einsum("mkd,md->mk", self.slope[which], inputs)

    def affine(self):
        rule, output, column = np.nonzero(self.slope)
        return AffineCoefficients(
            self.constant, rule, output, column, self.slope[rule, output, column]
        )


def network(random, inputs, outputs, *, count=2, **shape):
    """Random networks, wide enough to bend within a unit box."""
    architecture = NetworkArchitecture(inputs, outputs, **shape)
    parameters = {
        name: random.normal(size=(count, *size)) * (1.2 if name.startswith("weight") else 0.6)
        for name, size in architecture.shapes().items()
    }
    return NetworkMembers(architecture, parameters)


def trees(random, inputs, outputs, *, count=2, link="identity", single_precision=False):
    """Sums of two complete trees of depth two."""
    nodes = 7
    left = np.tile([1, 3, 5, 3, 4, 5, 6], (count, 2, 1))
    right = np.tile([2, 4, 6, 3, 4, 5, 6], (count, 2, 1))
    return TreeMembers(
        random.integers(inputs, size=(count, 2, nodes)),
        random.uniform(-0.8, 0.8, size=(count, 2, nodes)),
        left=left,
        right=right,
        value=random.normal(size=(count, 2, nodes, outputs)),
        input_size=inputs,
        initial=random.normal(size=(count, outputs)),
        factor=random.uniform(-1, 1, size=count),
        link=link,
        single_precision=single_precision,
    )


def constants(random, inputs, outputs, *, count=2):
    return ConstantMembers(random.normal(size=(count, outputs)), inputs)


def mixture(random, *stacks):
    """All stacks in one block, with random weights."""
    sizes = [len(stack) for stack in stacks]
    weights = np.split(random.dirichlet(np.ones(sum(sizes))), np.cumsum(sizes)[:-1])
    parts = tuple(
        Part(stack, np.zeros(len(stack), np.int64), own)
        for stack, own in zip(stacks, weights, strict=True)
    )
    return Ensemble(parts, Layout.single(stacks[0].output_size))


def two_blocks(random, inputs):
    """A little router: two demands, three paths each, the second with a path that is missing."""
    stack = network(
        random, inputs, 3, count=4, hidden=(4,), activation="gelu", skip=True, output="softmax",
        shift=np.full(inputs, 0.1), scale=np.full(inputs, 0.7),
    )  # fmt: skip
    state = {name: value.numpy().copy() for name, value in stack.parameters.items()}
    for name in ("weight_1", "skip"):
        state[name][1::2, 2] = 0.0
    state["bias_1"][1::2, 2] = -1e4
    members = NetworkMembers(stack.architecture, state)
    blocks = np.array([0, 1, 0, 1])
    weights = np.array([0.3, 0.6, 0.7, 0.4])
    layout = Layout((np.array([0, 1, 2]), np.array([3, 4])))
    return Ensemble((Part(members, blocks, weights),), layout)


def random_rules(random, outputs, inputs, *, count=3, slopes=True):
    """Coefficients of both signs; some outputs share theirs, as the paths on one link do."""
    constant = random.integers(-1, 2, size=(count, outputs)) * random.uniform(0.5, 2, (count, 1))
    slope = random.normal(size=(count, 1, inputs)) * random.integers(0, 2, (count, outputs, 1))
    return AffineRules(constant, slope * slopes)


def requirement(rules, lower, upper, limit=1.0, region=None):
    return Linear(region or Box(lower, upper), rules, limit, "<=", name="cap")


def full_tree(depth, inputs):
    """Halves the dimensions in turn: preorder with -1 for leaves."""
    if depth == 0:
        return [-1]
    below = full_tree(depth - 1, inputs)
    return [(depth - 1) % inputs, *below, *below]


def certification(limits, trees):
    """A certification that claims these trees prove everything."""
    proofs = tuple(
        RuleProof(
            rule=number,
            status="proven",
            limit=float(limit),
            bound=float(limit),
            dimensions=np.array(tree, np.int16),
            leaf_bounds=np.full(tree.count(-1), float(limit)),
            cells=len(tree),
        )
        for number, (limit, tree) in enumerate(zip(limits, trees, strict=True))
    )
    none = OpenCells(np.empty(0, np.int64), np.empty((0, 1)), np.empty((0, 1)), np.empty(0))
    return Certification("proven", proofs, None, None, None, none, 1, 0.0, "")


def certificate(ensemble, wanted, depth=0):
    """The bytes of a certificate with a full tree of this depth for every rule."""
    limits = find_affine_rules(wanted, output_size=ensemble.output_size).limit
    trees_ = [full_tree(depth, ensemble.input_size) for _ in limits]
    return build_certificate(
        ensemble, requirement=wanted, certification=certification(limits, trees_)
    )


def claim(ensemble, wanted):
    return Claim(parse_certificate(certificate(ensemble, wanted)))


def values(ensemble, wanted, points):
    """(n, rules) by the shipped inference."""
    rules = find_affine_rules(wanted, output_size=ensemble.output_size)
    return rules.values(points, ensemble.predict(points))


def altered(data, change):
    """The certificate with `change(claim, arrays)` applied in place and a fitting new digest."""
    content = parse_certificate(data)
    change(content.claim, content.arrays)
    text = json.dumps(content.claim).encode()
    return seal_arrays({**content.arrays, "claim": np.frombuffer(text, np.uint8)})
