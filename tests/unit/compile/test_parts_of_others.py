"""Rules and members of other packages that lack what nothing has a default for are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cg4ai import Problem
from cg4ai.colgen import FinitePricer, Layout, Supervised
from cg4ai.errors import InvalidInput
from cg4ai.members import ConstantMembers, MemberDefaults
from cg4ai.rules import InputRule, Linear
from raising import raises

X = np.linspace(-1, 1, 12).reshape(6, 2)


def problem(*requirements: Any, start: Any = ()) -> Problem:
    members = ConstantMembers([[1.0]], 2)
    return Problem(
        objective=Supervised(X, X[:, :1], "squared", "mixture"),
        requirements=requirements,
        pricers=[FinitePricer([(members, np.zeros(1, np.int64))])],
        layout=Layout.single(1),
        start=start,
    )


def test_a_rule_without_rows_is_refused() -> None:
    @dataclass(frozen=True, eq=False)
    class Half(InputRule):
        def check(self, input_size: int, output_size: int) -> None:
            self.fit(input_size, output_size)

    with raises(InvalidInput, "type", "Half", "rows", "describe", "cg4ai.rules.InputRule"):
        problem(Half(X, name="half"))
    assert problem(Linear(X, [1.0], 1.0)).requirements


def test_members_without_outputs_are_refused() -> None:
    class Half(MemberDefaults):
        kind = "half"
        device = torch.device("cpu")
        input_size, output_size = 2, 1

        def __len__(self) -> int:
            return 1

    start = ((Half(), np.zeros(1, np.int64)),)
    with raises(InvalidInput, "type", "Half", "outputs", "take", "cg4ai.members.MemberDefaults"):
        problem(start=start)
