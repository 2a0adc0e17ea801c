"""A device that is not there: tensors say that they live on it and refuse to meet those on the CPU.

Inside `with Elsewhere():` the device `xpu` can be used on any machine. Its tensors are ordinary
ones with a mark; every torch function is watched, so that what a GPU would refuse (operands of two
devices, `.numpy()` without `.cpu()`) is refused here, too, with the values still being computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

NAME = "xpu"
DEVICE = torch.device(NAME, 0)
MARK = "_lives_elsewhere"
MAY_MEET = ("copy_", "_has_compatible_shallow_copy_type")


def is_elsewhere(tensor: Tensor) -> bool:
    return bool(getattr(tensor, MARK, False))


class Elsewhere(TorchFunctionMode):
    """The mode in which the device exists; `moved` counts the tensors that were sent there."""

    def __init__(self) -> None:
        super().__init__()
        self.moved = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        first = args[0] if args and isinstance(args[0], Tensor) else None
        if name == "__get__":
            return self._property(func, args[0])
        if name == "__set__" and getattr(getattr(func, "__self__", None), "__name__", "") == "data":
            func(*args)  # how torch.nn.Module.to moves parameters
            return self._placed(args[0], None, elsewhere=is_elsewhere(args[1]))
        if first is not None and is_elsewhere(first) and name in ("numpy", "__array__"):
            raise RuntimeError("a tensor elsewhere has no NumPy array: move it with .cpu() first")
        if name == "cpu":
            return self._placed(func(*args, **kwargs), first, elsewhere=False)
        asked = _device(name, args, kwargs)
        if asked is not None:
            args = tuple("cpu" if _is_device(a) else a for a in args)
            if kwargs.get("device") is not None:
                kwargs["device"] = "cpu"
            return self._placed(func(*args, **kwargs), first, elsewhere=asked)
        there = self._meeting(name, args, kwargs)
        return self._placed(func(*args, **kwargs), first, elsewhere=there)

    def _property(self, func: Any, tensor: Tensor) -> Any:
        which = getattr(getattr(func, "__self__", None), "__name__", "")
        if which == "device" and is_elsewhere(tensor):
            return DEVICE
        return self._placed(func(tensor), None, elsewhere=is_elsewhere(tensor))

    def _meeting(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a function's tensors are elsewhere; an error if they are in two places."""
        tensors = list(_tensors((args, kwargs)))
        there = [t for t in tensors if is_elsewhere(t)]
        # numbers may come from anywhere, as on a GPU
        here = [t for t in tensors if not is_elsewhere(t) and t.dim() > 0]
        indexed = name in ("__getitem__", "__setitem__") and is_elsewhere(args[0])
        if indexed:  # positions may come from the CPU
            positions = {id(t) for t in _tensors(args[1])}
            here = [t for t in here if id(t) not in positions]
        if there and here and name not in MAY_MEET:
            raise RuntimeError(f"{name}: tensors on {DEVICE} and on cpu; move one with .to(...)")
        return bool(there)

    def _placed(self, result: Any, source: Tensor | None, *, elsewhere: bool) -> Any:
        """The result with all its tensors marked; a tensor that was moved is another object."""
        if isinstance(result, Tensor):
            if result is source and is_elsewhere(result) != elsewhere:
                result = result.clone()
            if elsewhere and not is_elsewhere(result):
                self.moved += 1
            if is_elsewhere(result) != elsewhere:
                setattr(result, MARK, elsewhere)
            return result
        if isinstance(result, (tuple, list)):
            for part in result:
                self._placed(part, None, elsewhere=elsewhere)
        return result


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (
        isinstance(value, str) and value.partition(":")[0] in ("cpu", NAME)
    )


def _device(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool | None:
    """Whether a call asks for the device elsewhere; None where it asks for no device."""
    asked = kwargs.get("device")
    if asked is None and name == "to":
        asked = next((a for a in args[1:] if _is_device(a)), None)
        other = next((a for a in args[1:] if isinstance(a, Tensor)), None)
        if other is not None:
            return is_elsewhere(other)
    return None if asked is None else torch.device(asked).type == NAME


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
