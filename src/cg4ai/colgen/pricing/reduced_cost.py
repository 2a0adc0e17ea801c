"""What a member contributes, and what it is worth at given duals, for the loop and all pricers.

It contributes a coefficient to every row, and its outputs in their block.

`Duals.reduced_costs` defines the reduced cost; here is what it is made of. The cost of a member is
`loss_weight` x mean loss of s for an `average` objective and 0 for `epigraph`. For `mixture` it is
`loss_weight` x <gradient, s(X)>, the directional derivative of the loss at the current mixture;
while there is no mixture yet (all weight on the dummy columns) it is the member's own mean loss,
which is what the objective becomes if the member takes all weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.layout import Layout
from cg4ai.members.mixture import Mixture
from cg4ai.objectives import AnyObjective, Supervised
from cg4ai.protocols import Members, PricingRequest
from cg4ai.records import Array, Duals, IntArray
from cg4ai.rules.rows import ConcaveRows, LinearRows, Rows, RowSet, join_batches

ConcaveMode = Literal["refuse", "linearise"]
CHUNK = 20_000_000  # numbers held at once while evaluating members
INPUTS = 16_384  # at which members are evaluated at once: inside they hold more than outputs


def compute_outputs(members: Members, inputs: Tensor) -> Tensor:
    """(count, n, r) without gradients, some inputs at a time."""
    with torch.no_grad():
        if len(inputs) <= INPUTS:
            found = members.outputs(inputs)
        else:
            parts = torch.split(inputs, INPUTS)
            found = torch.cat([members.outputs(part) for part in parts], dim=1)
    expected = (len(members), len(inputs), members.output_size)
    if found.shape != expected or found.dtype != torch.float64:  # of kinds of other packages
        raise InvalidInput(
            f"outputs() of {type(members).__name__} must give float64 values of shape {expected}, "
            f"got {found.dtype} of shape {tuple(found.shape)}"
        )
    return found


def compute_row_values(
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
            outputs = compute_outputs(own, inputs)
            if len(layout) > 1:  # many small products: a GPU would be launching all the time
                outputs = outputs.cpu()
            for number in np.unique(blocks[chunk]):
                mine, positions = np.flatnonzero(blocks[chunk] == number), layout.blocks[number]
                picked = outputs[torch.as_tensor(mine, device=outputs.device)]
                picked = picked[..., : len(positions)]
                result[:, chunk[mine]] = rows.values(picked, positions).cpu().numpy().T
    return result


def compute_block_outputs(
    inputs: Array, layout: Layout, members: Members, blocks: IntArray, device: str
) -> Tensor:
    """Outputs of members embedded in all r outputs, zero outside their block: (count, n, r)."""
    x = torch.as_tensor(inputs, device=device)
    raw = compute_outputs(members, x)
    full = torch.zeros(
        (len(members), len(inputs), layout.output_size), dtype=torch.float64, device=device
    )
    for number, positions in enumerate(layout.blocks):
        mine = torch.as_tensor(np.flatnonzero(blocks == number), device=device)
        where = torch.as_tensor(positions, device=device)
        full[mine[:, None], :, where[None, :]] = raw[mine][..., : len(positions)].transpose(1, 2)
    return full


def compute_all_values(rows: RowSet, members: Members, blocks: IntArray, device: str) -> Array:
    """Coefficients of candidate members in all rows of the master: (m, count)."""
    parts = [
        compute_row_values(batch, rows.layout, members, blocks, device)
        for batch in join_batches(rows.batches)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, len(members)))


@dataclass(frozen=True, slots=True)
class PriceTerms:
    """A reduced cost rearranged by output, for pricers that minimise it over linear rows.

    For a member s of block g with output positions P the reduced cost is
    `charge * mean loss(s) + sum_k <prices[k, P], s(inputs[k])> - gamma[g]`.
    `inputs` (k, d) are the inputs of rows with a positive dual and, for `mixture`, the data;
    `prices` (k, r); `charge` is 0 where no loss is charged member by member.
    """

    inputs: Array
    prices: Array
    charge: float


def is_loss_linearised(request: PricingRequest) -> bool:
    """Whether the loss enters by its gradient at the current mixture."""
    return request.objective.kind == "mixture" and request.ensemble is not None


def compute_mixture_outputs(ensemble: Mixture, inputs: Array, device: str) -> Array:
    """Outputs (n, r) of the mixture at `inputs` (n, d)."""
    x = torch.as_tensor(inputs, dtype=torch.float64, device=device)
    with torch.no_grad():
        outputs = torch.cat([ensemble.outputs(part) for part in torch.split(x, INPUTS)])
    return np.asarray(outputs.cpu().numpy(), dtype=np.float64)


def compute_loss_gradient(objective: Supervised, outputs: Array) -> Array:
    """Gradient (n, r) of the weighted mean loss with respect to `outputs` (n, r)."""
    z = torch.tensor(outputs, dtype=torch.float64, requires_grad=True)
    value = objective.costs(z.unsqueeze(0), np.arange(outputs.shape[1]))[0]
    (gradient,) = torch.autograd.grad(value, z)
    return np.asarray(gradient.numpy())


def _concave_prices(request: PricingRequest, rows: ConcaveRows, duals: Array) -> Array:
    """Minus the gradient of `sum_j dual_j row_j` at the mixture, (m, r)."""
    shape = (len(rows), request.rows.layout.output_size)
    start = (
        np.zeros(shape)
        if request.ensemble is None
        else compute_mixture_outputs(request.ensemble, rows.inputs, request.device)
    )
    z = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(rows.values(z) @ torch.as_tensor(duals), z)
    return -np.asarray(gradient.numpy())


def compute_price_terms(
    request: PricingRequest, row_duals: Array | None = None, *, concave: ConcaveMode = "refuse"
) -> PriceTerms:
    """The price of each output at each input that matters, at `row_duals` (default: the true ones).

    Concave rows have no fixed price: an exact pricer refuses them, a heuristic may linearise them
    at the current mixture.
    """
    layout = request.rows.layout
    duals = request.duals.rows if row_duals is None else row_duals
    inputs: list[Array] = []
    prices: list[Array] = []
    for batch, weights in zip(request.rows.batches, request.rows.split(duals), strict=True):
        if isinstance(batch, ConcaveRows) and concave == "refuse":
            raise InvalidInput(
                f"requirement {batch.requirement} has rows that are concave, not linear, in the "
                "outputs, and this pricer is exact for linear rows only; state a margin as its "
                "pairwise form (one linear row per other class), or price by gradient",
                code="unsupported",
            )
        used = np.flatnonzero(weights)
        if len(used) == 0:
            continue
        part = batch.take(used)
        inputs.append(part.inputs)
        if isinstance(part, LinearRows):
            prices.append(-part.gradient(weights[used]))
        else:
            prices.append(_concave_prices(request, part, weights[used]))
    charge = request.loss_weight
    objective = request.objective
    if not isinstance(objective, Supervised):
        charge = 0.0
    elif (gradient := _gradient_at_mixture(request)) is not None:
        inputs.append(objective.inputs)
        prices.append(request.loss_weight * gradient)
        charge = 0.0
    width = objective.inputs.shape[1]
    return PriceTerms(
        inputs=np.concatenate([np.empty((0, width)), *inputs]),
        prices=np.concatenate([np.empty((0, layout.output_size)), *prices]),
        charge=charge,
    )


def compute_reduced_costs(request: PricingRequest, members: Members, blocks: IntArray) -> Array:
    """Reduced costs (len(members),) in float64, from the members' real outputs.

    Handles every objective, several blocks, linear and concave rows; rows with dual 0 cost
    nothing.
    """
    duals = request.duals.rows
    used = [np.flatnonzero(part) for part in request.rows.split(duals)]
    parts = [
        batch.take(which)
        for batch, which in zip(request.rows.batches, used, strict=True)
        if len(which)
    ]
    layout, moved = request.rows.layout, members.to(request.device)
    coefficients = compute_all_values(RowSet(layout, parts), moved, blocks, request.device)
    costs = np.zeros(len(members))
    if request.loss_weight:
        gradient = _gradient_at_mixture(request)
        costs = request.loss_weight * compute_member_costs(
            request.objective, layout, moved, blocks, device=request.device, gradient=gradient
        )
    return Duals(duals[duals != 0], request.duals.blocks).reduced_costs(costs, coefficients, blocks)


def compute_member_costs(
    objective: AnyObjective,
    layout: Layout,
    members: Members,
    blocks: IntArray,
    *,
    device: str,
    gradient: Array | None = None,
) -> Array:
    """What a unit of weight on each member costs, (len(members),).

    Nothing for an epigraph, whose pieces are rows; `<gradient, outputs>` if the loss is linearised,
    with `gradient` (n, r) at the mixture; else the member's own mean loss.
    """
    costs = np.zeros(len(members))
    if not isinstance(objective, Supervised):
        return costs
    inputs = torch.as_tensor(objective.inputs, dtype=torch.float64, device=device)
    size = max(1, CHUNK // (len(inputs) * members.output_size))
    for block in np.unique(blocks):
        positions = layout.blocks[block]
        mine = np.flatnonzero(blocks == block)
        for part in np.split(mine, range(size, len(mine), size)):
            own = members if len(part) == len(members) else members.take(part)
            with torch.no_grad():
                outputs = compute_outputs(own, inputs)[..., : len(positions)]
                if gradient is None:
                    found = objective.costs(outputs, positions)
                else:
                    slope = torch.as_tensor(gradient[:, positions], device=device)
                    found = torch.einsum("mnr,nr->m", outputs, slope)
            costs[part] = found.cpu().numpy()
    return costs


def _gradient_at_mixture(request: PricingRequest) -> Array | None:
    """Of the loss at the current mixture, (n, r), if that is how the loss enters; else None."""
    objective, ensemble = request.objective, request.ensemble
    if ensemble is None or objective.kind != "mixture" or not isinstance(objective, Supervised):
        return None
    outputs = compute_mixture_outputs(ensemble, objective.inputs, request.device)
    return compute_loss_gradient(objective, outputs)
