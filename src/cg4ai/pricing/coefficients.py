"""What a member contributes: its coefficient in every row, and its outputs in their block."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cg4ai.members.mixture import Layout
from cg4ai.protocols import Members
from cg4ai.records import Array, IntArray
from cg4ai.rules.rows import Rows, RowSet, joined

CHUNK = 20_000_000  # numbers held at once while evaluating members


def row_values(
    rows: Rows, layout: Layout, members: Members, blocks: IntArray, device: str
) -> Array:
    """The coefficient of each member in each row: (len(rows), len(members)), float64."""
    result = np.zeros((len(rows), len(members)))
    inputs = torch.as_tensor(rows.inputs, device=device)
    size = max(1, CHUNK // max(1, len(inputs) * members.output_size))
    for start in range(0, len(members), size):
        chunk = np.arange(start, min(start + size, len(members)))
        with torch.no_grad():
            own = members if len(chunk) == len(members) else members.take(chunk)
            outputs = own.outputs(inputs)
            if len(layout) > 1:  # many small products: a GPU would be launching all the time
                outputs = outputs.cpu()
            for number in np.unique(blocks[chunk]):
                mine, positions = np.flatnonzero(blocks[chunk] == number), layout.blocks[number]
                picked = outputs[torch.as_tensor(mine, device=outputs.device)]
                picked = picked[..., : len(positions)]
                result[:, chunk[mine]] = rows.values(picked, positions).cpu().numpy().T
    return result


def block_outputs(
    inputs: Array, layout: Layout, members: Members, blocks: IntArray, device: str
) -> Tensor:
    """Outputs of members embedded in all r outputs, zero outside their block: (count, n, r)."""
    x = torch.as_tensor(inputs, device=device)
    with torch.no_grad():
        raw = members.outputs(x)
    full = torch.zeros(
        (len(members), len(inputs), layout.output_size), dtype=torch.float64, device=device
    )
    for number, positions in enumerate(layout.blocks):
        mine = torch.as_tensor(np.flatnonzero(blocks == number), device=device)
        where = torch.as_tensor(positions, device=device)
        full[mine[:, None], :, where[None, :]] = raw[mine][..., : len(positions)].transpose(1, 2)
    return full


def all_values(rows: RowSet, members: Members, blocks: IntArray, device: str) -> Array:
    """Coefficients of candidate members in all rows of the master: (m, count)."""
    parts = [
        row_values(batch, rows.layout, members, blocks, device) for batch in joined(rows.batches)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, len(members)))
