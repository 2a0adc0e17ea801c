"""Members inside the master: stacks by kind, and their coefficient in every row."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cg4ai.colgen.pricing.reduced_cost import compute_block_outputs, compute_row_values
from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.layout import Layout
from cg4ai.members import concatenate
from cg4ai.members.mixture import Part
from cg4ai.protocols import Members
from cg4ai.records import Array, IntArray
from cg4ai.rules.rows import Rows

NO_WEIGHT = 1e-9  # a block with less weight than this has its dummy column alone


@dataclass(slots=True)
class _Stack:
    members: Members
    blocks: IntArray
    numbers: IntArray  # column numbers in the master


class Columns:
    """All columns in the order of the master; members of one architecture share a stack."""

    def __init__(self, layout: Layout, device: str) -> None:
        self.layout = layout
        self.device = device
        self.stacks: list[_Stack] = []

    def __len__(self) -> int:
        return sum(len(stack.numbers) for stack in self.stacks)

    def add(self, members: Members, blocks: IntArray) -> None:
        numbers = np.arange(len(self), len(self) + len(members))
        moved = members.to(self.device)
        for stack in self.stacks:
            if type(stack.members) is type(moved):
                joined = concatenate([stack.members, moved])
                if joined is not None:
                    stack.members = joined
                    stack.blocks = np.concatenate([stack.blocks, blocks])
                    stack.numbers = np.concatenate([stack.numbers, numbers])
                    return
        self.stacks.append(_Stack(moved, blocks, numbers))

    def restore_stack(self, members: Members, blocks: IntArray, numbers: IntArray) -> None:
        """Put back a stack as it was saved."""
        self.stacks.append(_Stack(members.to(self.device), blocks, numbers))

    def coefficients(self, rows: Rows) -> Array:
        """(len(rows), len(self)): a new row's coefficient for every column."""
        result = np.empty((len(rows), len(self)))
        for stack in self.stacks:
            result[:, stack.numbers] = compute_row_values(
                rows, self.layout, stack.members, stack.blocks, self.device
            )
        return result

    def outputs(self, inputs: Array) -> Tensor:
        """(len(self), n, r): every column's outputs, zero outside its block."""
        shape = (len(self), len(inputs), self.layout.output_size)
        result = torch.empty(shape, dtype=torch.float64, device=self.device)
        for stack in self.stacks:
            result[torch.as_tensor(stack.numbers, device=self.device)] = compute_block_outputs(
                inputs, self.layout, stack.members, stack.blocks, self.device
            )
        return result

    @property
    def blocks(self) -> IntArray:
        result = np.empty(len(self), np.int64)
        for stack in self.stacks:
            result[stack.numbers] = stack.blocks
        return result

    def ensemble(self, weights: Array) -> Ensemble | None:
        """The mixture; weights of each block are renormalised to sum to one.

        None while some block has no weight at all (all of it on the dummy column).
        """
        weights = np.maximum(weights, 0.0)
        total = np.zeros(len(self.layout))
        blocks = self.blocks
        np.add.at(total, blocks, weights)
        if np.any(total <= 0):
            return None
        weights = weights / total[blocks]
        parts = []
        for stack in self.stacks:
            used = np.flatnonzero(weights[stack.numbers] > 0)
            if len(used):
                parts.append(
                    Part(
                        stack.members.take(used),
                        stack.blocks[used],
                        weights[stack.numbers[used]],
                    )
                )
        return Ensemble(tuple(parts), self.layout, device=self.device)
