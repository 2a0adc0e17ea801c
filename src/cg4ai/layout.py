"""`Layout`: which outputs of a predictor each block of members fills."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.records import IntArray


@dataclass(frozen=True, slots=True)
class Layout:
    """Which outputs of the whole predictor each block of members fills.

    `blocks[g]` lists output positions; together they are a partition of range(output_size).
    A member may have more outputs than its block has positions; the surplus is ignored.
    """

    blocks: tuple[IntArray, ...]

    def __post_init__(self) -> None:
        joined = np.sort(np.concatenate(self.blocks)) if self.blocks else np.empty(0, np.int64)
        if len(joined) == 0 or not np.array_equal(joined, np.arange(len(joined))):
            raise InvalidInput(
                "the blocks of a layout must name every output position exactly once, "
                f"got {[block.tolist() for block in self.blocks]}"
            )

    @classmethod
    def single(cls, output_size: int) -> Layout:
        return cls((np.arange(output_size),))

    def places(self, width: int) -> IntArray | None:
        """Where each output lies among those of all blocks side by side, `width` of each block.

        None where they lie in order already, which needs no look-up.
        """
        places = np.empty(self.output_size, np.int64)
        for number, positions in enumerate(self.blocks):
            places[positions] = number * width + np.arange(len(positions))
        return None if np.array_equal(places, np.arange(len(self) * width)) else places

    @property
    def output_size(self) -> int:
        return sum(len(block) for block in self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)
