"""What a member is worth at given duals: the one definition that pricers and the loop share.

The reduced cost of member s in block g is `cost(s) - sum_j beta_j row_j(s) - gamma_g`. The cost is
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
from cg4ai.members.mixture import Mixture
from cg4ai.objectives import Supervised
from cg4ai.protocols import Members, PricingRequest
from cg4ai.records import Array, IntArray
from cg4ai.rules.rows import ConcaveRows, LinearRows

CHUNK = 20_000_000  # numbers held at once while evaluating members
ConcaveMode = Literal["refuse", "linearise", "skip"]


@dataclass(frozen=True, slots=True)
class PriceTerms:
    """The parts of a reduced cost, ready for a pricer of linear rows.

    For a member s of block g with output positions P the reduced cost is
    `charge * mean loss(s) + sum_k <prices[k, P], s(inputs[k])> - gammas[g]`.
    `inputs` (k, d) are the inputs of rows with a positive dual and, for `mixture`, the data;
    `prices` (k, r); `charge` is 0 where no loss is charged member by member.
    """

    inputs: Array
    prices: Array
    charge: float
    gammas: Array


def loss_is_linearised(request: PricingRequest) -> bool:
    """Whether the loss enters by its gradient at the current mixture."""
    return request.objective.kind == "mixture" and request.ensemble is not None


def mixture_outputs(ensemble: Mixture, inputs: Array, device: str) -> Array:
    """Outputs (n, r) of the mixture at `inputs` (n, d)."""
    with torch.no_grad():
        outputs = ensemble.outputs(torch.as_tensor(inputs, dtype=torch.float64, device=device))
    return np.asarray(outputs.cpu().numpy(), dtype=np.float64)


def loss_gradient(objective: Supervised, outputs: Array) -> Array:
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
        else mixture_outputs(request.ensemble, rows.inputs, request.device)
    )
    z = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(rows.values(z) @ torch.as_tensor(duals), z)
    return -np.asarray(gradient.numpy())


def price_terms(
    request: PricingRequest, row_duals: Array | None = None, *, concave: ConcaveMode = "refuse"
) -> PriceTerms:
    """The price of each output at each input that matters, at `row_duals` (default: the true ones).

    Concave rows have no fixed price: an exact pricer refuses them, a heuristic may linearise them
    at the current mixture, and `skip` leaves them to the caller.
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
                "pairwise form (one linear row per other class), or price by gradient"
            )
        used = np.flatnonzero(weights)
        if len(used) == 0 or (isinstance(batch, ConcaveRows) and concave == "skip"):
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
    elif request.ensemble is not None and loss_is_linearised(request):
        outputs = mixture_outputs(request.ensemble, objective.inputs, request.device)
        inputs.append(objective.inputs)
        prices.append(request.loss_weight * loss_gradient(objective, outputs))
        charge = 0.0
    width = objective.inputs.shape[1]
    return PriceTerms(
        inputs=np.concatenate([np.empty((0, width)), *inputs]),
        prices=np.concatenate([np.empty((0, layout.output_size)), *prices]),
        charge=charge,
        gammas=request.duals.blocks,
    )


def reduced_costs(
    request: PricingRequest, members: Members, blocks: IntArray, row_duals: Array | None = None
) -> Array:
    """Reduced costs (len(members),) in float64, from the members' real outputs.

    Handles every objective, several blocks, linear and concave rows; `row_duals` replaces the
    master's own (a pricer proposing by smoothed duals), rows with dual 0 cost nothing.
    """
    duals = request.duals.rows if row_duals is None else row_duals
    terms = price_terms(request, duals, concave="skip")
    result = np.empty(len(members))
    moved = members.to(request.device)
    for block in np.unique(blocks):
        mine = np.flatnonzero(blocks == block)
        positions = request.rows.layout.blocks[block]
        group = moved.take(mine)
        total = _linear_part(group, terms, positions, request.device)
        total += _concave_part(request, group, positions, duals)
        if terms.charge:
            total += terms.charge * _mean_losses(request, group, positions)
        result[mine] = total.cpu().numpy() - terms.gammas[block]
    return result


def _block_outputs(members: Members, inputs: Array, positions: IntArray, device: str) -> Tensor:
    with torch.no_grad():
        x = torch.as_tensor(inputs, dtype=torch.float64, device=device)
        return members.outputs(x)[..., : len(positions)]


def _linear_part(members: Members, terms: PriceTerms, positions: IntArray, device: str) -> Tensor:
    total = torch.zeros(len(members), dtype=torch.float64, device=device)
    prices = torch.as_tensor(terms.prices[:, positions], device=device)
    size = max(1, CHUNK // (len(members) * members.output_size))
    for start in range(0, len(prices), size):
        chunk = slice(start, start + size)
        outputs = _block_outputs(members, terms.inputs[chunk], positions, device)
        total += torch.einsum("mkr,kr->m", outputs, prices[chunk])
    return total


def _concave_part(
    request: PricingRequest, members: Members, positions: IntArray, duals: Array
) -> Tensor:
    total = torch.zeros(len(members), dtype=torch.float64, device=request.device)
    for batch, weights in zip(request.rows.batches, request.rows.split(duals), strict=True):
        used = np.flatnonzero(weights)
        if len(used) == 0 or isinstance(batch, LinearRows):
            continue
        if len(positions) != request.rows.layout.output_size:
            raise InvalidInput(
                f"requirement {batch.requirement} is concave in the outputs and needs all "
                f"{request.rows.layout.output_size} outputs in one block, got {len(positions)}; "
                "use one block, or state it by linear rows"
            )
        part = batch.take(used)
        outputs = _block_outputs(members, part.inputs, positions, request.device)
        with torch.no_grad():
            values = part.values(outputs, positions)
            total -= values @ torch.as_tensor(weights[used], device=request.device)
    return total


def _mean_losses(request: PricingRequest, members: Members, positions: IntArray) -> Tensor:
    if not isinstance(request.objective, Supervised):
        raise InvalidInput("only a supervised objective charges a member its mean loss")
    outputs = _block_outputs(members, request.objective.inputs, positions, request.device)
    with torch.no_grad():
        return request.objective.costs(outputs, positions)
