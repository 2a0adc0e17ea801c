"""Modules of the user's own: what their factories may be, raise and leave behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.func import stack_module_state

from cg4ai.errors import InvalidInput
from cg4ai.protocols import Parameters

# what factories and modules of others raise when they are called in a way they are not made for
FAILURES = (
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(RuntimeError, TypeError, ValueError),
)


@dataclass(frozen=True)
class LostFactory:
    """Stands in a pickle for a factory that no pickle can hold: a lambda, or a local function."""

    __name__: str

    def __call__(self) -> nn.Module:
        raise InvalidInput(
            f"the factory {self.__name__!r} was lost in a pickle, which holds functions of modules "
            "only: predictions need it no more; to train again, give it anew",
            code="missing-factory",
        )


def make_picklable(factory: Any) -> Any:
    """What a pickle can hold of it: anything but lambdas and local functions as it is."""
    name = getattr(factory, "__qualname__", "")
    return LostFactory(factory.__name__) if "<" in name else factory


def format_error_line(error: Exception) -> str:
    """An error of somebody else's code in one line."""
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"


@contextmanager
def disable_fused_attention(*, off: bool) -> Iterator[None]:
    """Without torch's fused kernel of attention in eval mode, which has no gradient."""
    before = torch.backends.mha.get_fastpath_enabled()
    if off:
        torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        if off:
            torch.backends.mha.set_fastpath_enabled(before)


def stack_state(modules: Sequence[nn.Module]) -> tuple[Parameters, Parameters]:
    """Parameters and buffers, modules first."""
    parameters, buffers = stack_module_state(list(modules))
    return (
        {key: value.detach() for key, value in parameters.items()},
        {key: value.detach() for key, value in buffers.items()},
    )
