"""`Completion`: a layer whose outputs keep equalities at every input, whatever comes in."""

from __future__ import annotations

import torch
from torch import Tensor

from cg4ai.errors import InvalidInput
from cg4ai.nn.completing import CompletionTensors
from cg4ai.nn.layer_rules import Given, check_rules
from cg4ai.nn.rule_layer import RuleLayer, working_dtype
from cg4ai.rules.equality import Equality, join_equalities


class Completion(RuleLayer):
    """Outputs that keep `Equality` rules: from the free numbers (..., k), or any outputs (..., r).

    With as many numbers as the equalities leave free (`free_size`), y = offset + slope x + basis z.
    With as many as outputs they are projected orthogonally. x is needed where a bound depends on
    it. Numbers that are not finite count as 0, a whole row of them.

    >>> balance = Equality(None, [1.0, 1.0, 1.0], 1.0, name="balance")
    >>> model = nn.Sequential(nn.Linear(3, 2), Completion(balance))
    """

    def __init__(self, rules: Given, *, input_size: int | None = None) -> None:
        kept = check_rules(rules, "Completion")
        own = [one for one in kept if isinstance(one, Equality)]
        if len(own) < len(kept) or not kept:
            wrong = ", ".join(one.name for one in kept if not isinstance(one, Equality))
            raise InvalidInput(
                f"a Completion takes Equality rules, got {wrong or 'none'}; other rules are for a "
                "Shield or an OutputSet",
                code="type",
            )
        sizes = {one.affine_width for one in own} - {0}
        size = max(sizes, default=0) if input_size is None else input_size
        source = join_equalities(own, input_size=max(1, size))
        super().__init__(
            input_size=size,
            output_size=source.output_size,
            needs_input=bool(source.slope.any()),
            digest=source.digest,
        )
        self.requirements, self.source = tuple(own), source
        self.free_size = source.free_size
        self._forms = {self.output_size: source.project()}
        if 0 < source.free_size < self.output_size:
            self._forms[source.free_size] = source
        for one in own:
            if not all(
                one.is_kept_by(form.offset, form.slope, form.basis) for form in self._forms.values()
            ):
                raise InvalidInput(
                    f"{one.name} ties outputs of very different sizes together, so that rounding "
                    "would miss it; state these outputs in units in which its coefficients are "
                    "alike",
                    code="range",
                )
        self._tensors: dict[tuple[int, torch.dtype, torch.device], CompletionTensors] = {}
        self._prepare()

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(self._forms)

    def _keep(self, given: Tensor, inputs: Tensor | None, dtype: torch.dtype) -> Tensor:
        z = given.to(working_dtype(given.device))
        z = torch.where(torch.isfinite(z).all(-1, keepdim=True), z, 0.0)
        own = self._on(z)
        if inputs is None or not self.needs_input:
            return (z @ own.basis + own.offset).to(dtype)
        return own.complete(z, inputs.to(z.dtype)).to(dtype)

    def _on(self, like: Tensor) -> CompletionTensors:
        key = (int(like.shape[-1]), like.dtype, like.device)
        if key not in self._tensors:
            self._tensors[key] = CompletionTensors.of(self._forms[key[0]], like)
        return self._tensors[key]

    def extra_repr(self) -> str:
        names = ", ".join(one.name for one in self.requirements)
        return (
            f"{names}; {' or '.join(map(str, self.widths))} numbers to {self.output_size} outputs"
        )

    def guarantee(self, dtype: torch.dtype | None = None) -> str:
        """Which rules hold, and up to what rounding of this dtype: what it was last cast to."""
        asked = self.dtype if dtype is None else dtype
        double = asked == torch.float64
        lines = [
            f"Completion of {self.output_size} outputs, in {'float64' if double else 'float32'}:"
        ]
        lines += [f"- {one.name} holds at every input" for one in self.requirements]
        lines.append("Established by construction: y = offset + slope x + basis z keeps them.")
        more = "" if double else ", and 6.1e-08 of the outputs' in its sums"
        lines.append(f"Rounding: met within 1e-12 of the sizes of what is added up{more}.")
        if self.needs_input:
            lines.append("Where x has NaN or infinite numbers, so have the outputs.")
        return "\n".join(lines)
