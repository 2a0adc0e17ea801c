"""Read what a run's folder holds, by a reader that shares nothing with the one that loads it.

docs/runs.md states every field with its JSON type and every array with its dtype. Whatever could
be read in two ways is refused here: a number for a text, 1 for 1.0, a key that stands twice, an
unknown field. What loads the folder is as strict, so that both speak of the same mixture.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.errors import Rejected, Unreadable

Arrays = dict[str, NDArray[Any]]
Check = Callable[[Any, str], None]

RECORD, ARRAYS = "ensemble.json", "members.safetensors"
FORMAT, VERSION = "cg4ai-ensemble", 3
SEAL = "sha256"
DEEPEST = 100  # levels of lists and objects
INTEGERS = 2**64
WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
QUOTE = "'"
# what code that trusts a folder raises where its content is of another shape than expected
DAMAGED = (KeyError, TypeError, ValueError, IndexError, AttributeError)
DTYPES = {
    "BOOL": np.dtype(np.bool_),
    **{f"F{8 * size}": np.dtype(f"<f{size}") for size in (2, 4, 8)},
    **{f"I{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
}


@dataclass(frozen=True)
class MemberState:
    """A stack of members: its kind, its config and its arrays, all of their types."""

    kind: str
    config: dict[str, Any]
    arrays: Arrays


def below(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Those whose names begin so, by the rest of their names."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


# ---- files ---------------------------------------------------------------------------------------


def read_file(path: Path, *, links: bool = False) -> bytes:
    """All of a regular file; OSError for pipes, devices and, unless `links`, symbolic links.

    Nothing is waited for, and no more is read than the file's size when it was opened.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    if not links:
        if os.path.islink(path):
            raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
        flags |= getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return file.read(found.st_size)


def read_folder(folder: str | Path) -> tuple[dict[str, Any], Arrays]:
    """What ensemble.json says, and its arrays; Unreadable unless all is as it is written."""
    record, arrays = (Path(folder) / name for name in (RECORD, ARRAYS))
    content, digest = {}, ""
    path = record
    try:
        content = sealed_json(read_file(record))
        _record(content)
        path = arrays
        stored, digest = sealed_arrays(read_file(arrays))
        if digest != content["arrays"]:
            raise ValueError("it is not the file that was saved with the rest")
        path = record
        _ensemble(content, stored, "")
    except OSError as error:
        raise Unreadable(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise Unreadable(f"{path} is damaged: {error}") from error
    return content, stored


def sealed_json(data: bytes) -> dict[str, Any]:
    """The object that a sealed file holds, its seal left out; ValueError says what is wrong."""
    content = strict_json(data)
    if not isinstance(content, dict):
        raise ValueError("it holds no JSON object")
    seal = content.pop(SEAL, None)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    if seal != hashlib.sha256(text.encode()).hexdigest():
        raise ValueError("its content does not match its SHA-256")
    return {name: _worded(value) for name, value in content.items()}


def strict_json(data: bytes) -> Any:
    """JSON that says one thing alone; ValueError else."""
    try:
        content = json.loads(
            data.decode(),
            object_pairs_hook=_once,
            parse_constant=_no_word,
            parse_float=_finite,
            parse_int=_integer,
        )
        _levels(content, DEEPEST)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    return content


def sealed_arrays(data: bytes) -> tuple[Arrays, str]:
    """The arrays of a safetensors file, and their digest; ValueError says what is wrong."""
    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or start > len(data):
        raise ValueError("it is shorter than it says")
    header = strict_json(data[8:start])
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    about = header.pop("__metadata__", None)
    if not isinstance(about, dict) or set(about) != {SEAL}:
        raise ValueError("it carries no SHA-256")
    object_of(header, {}, "the header", rest=_tensor)
    arrays: Arrays = {}
    body, end = memoryview(data)[start:], 0
    for name, one in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape, (first, last) = DTYPES[one["dtype"]], one["shape"], one["data_offsets"]
        if first != end or last - first != math.prod(shape) * dtype.itemsize or last > len(body):
            raise ValueError(f"the bytes of the array {name!r} are not where they should be")
        arrays[name] = np.frombuffer(body[first:last], dtype).reshape(shape).copy()
        if dtype == np.bool_ and (np.frombuffer(body[first:last], np.uint8) > 1).any():
            raise ValueError(f"the array {name!r} holds what is neither true nor false")
        end = last
    if end != len(body):
        raise ValueError("bytes follow its last array")
    total = hashlib.sha256()
    for name in sorted(arrays):
        one = arrays[name]
        total.update(json.dumps([name, one.dtype.name, list(one.shape)]).encode())
        total.update(one.tobytes())
    if total.hexdigest() != about[SEAL]:
        raise ValueError("its arrays do not match its SHA-256")
    return arrays, total.hexdigest()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return dict(pairs)


def _no_word(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:40]} is beyond all floats")
    return value


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > 20 or abs(int(digits)) >= INTEGERS:
        raise ValueError(f"{digits[:40]} takes more than 64 bits")
    return int(digits)


def _levels(content: Any, left: int) -> None:
    if not isinstance(content, dict | list):
        return
    if left == 0:
        raise ValueError(f"it has more than {DEEPEST} levels of lists and objects")
    for one in content.values() if isinstance(content, dict) else content:
        _levels(one, left - 1)


def _worded(value: Any) -> Any:
    """Words that stand for floats as these, and texts that are such words without their quote."""
    if isinstance(value, dict):
        return {name: _worded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_worded(one) for one in value]
    if isinstance(value, str) and value.lstrip(QUOTE) in WORDS:
        return value[1:] if value.startswith(QUOTE) else WORDS[value]
    return value


# ---- types ---------------------------------------------------------------------------------------


def object_of(
    value: Any, fields: Mapping[str, Check], what: str, *, rest: Check | None = None
) -> None:
    """ValueError unless it is an object of these fields, each as its check asks, and no others.

    With `rest` others are checked by it.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object, got {value!r:.80}")
    if missing := sorted(set(fields) - set(value)):
        raise ValueError(f"{what} lacks {', '.join(missing)}")
    for name, one in value.items():
        check = fields.get(name, rest)
        if check is None:
            raise ValueError(f"{what} has a field {name!r:.80}, which is not known")
        check(one, f"{name} of {what}")


def _type(kind: type, words: str) -> Check:
    def check(value: Any, what: str) -> None:
        if type(value) is not kind:
            raise ValueError(f"{what} must be {words}, got {value!r:.80}")

    return check


text, number, boolean = (
    _type(kind, words)
    for kind, words in ((str, "text"), (float, "a float"), (bool, "true or false"))
)


def finite(value: Any, what: str) -> None:
    """ValueError unless it is a float that is finite; 1 is none, 1.0 is."""
    number(value, what)
    if not math.isfinite(value):
        raise ValueError(f"{what} must be finite, got {value!r}")


def integer(value: Any, what: str) -> None:
    """ValueError unless it is an integer of at least 0; 1.0 is none, nor is true."""
    if type(value) is not int or value < 0:
        raise ValueError(f"{what} must be an integer of at least 0, got {value!r:.80}")


def _size(value: Any, what: str) -> None:
    integer(value, what)
    if value < 1:
        raise ValueError(f"{what} must be at least 1")


def each(check: Check) -> Check:
    """A list whose entries are all as `check` asks."""

    def checked(value: Any, what: str) -> None:
        if not isinstance(value, list):
            raise ValueError(f"{what} must be a list, got {value!r:.80}")
        for number, one in enumerate(value):
            check(one, f"entry {number} of {what}")

    return checked


def one_of(*values: Any) -> Check:
    """One of these, type and all."""

    def check(value: Any, what: str) -> None:
        if not any(type(value) is type(one) and value == one for one in values):
            raise ValueError(f"{what} must be one of {values}, got {value!r:.80}")

    return check


def _any_object(value: Any, what: str) -> None:
    object_of(value, {}, what, rest=lambda one, what: None)


def pair_of(*checks: Check) -> Check:
    def check(value: Any, what: str) -> None:
        if not isinstance(value, list) or len(value) != len(checks):
            raise ValueError(f"{what} must be a list of {len(checks)}, got {value!r:.80}")
        for one, own in zip(value, checks, strict=True):
            own(one, what)

    return check


def _tensor(value: Any, what: str) -> None:
    fields = {
        "dtype": one_of(*DTYPES),
        "shape": each(integer),
        "data_offsets": pair_of(integer, integer),
    }
    object_of(value, fields, what)


def region(value: Any, what: str) -> None:
    """ValueError unless it is a region as it is written."""
    box = {"kind": text, "lower": each(finite), "upper": each(finite)}
    kinds = {
        "box": box,
        "polytope": box | {"matrix": each(each(finite)), "limit": each(finite)},
        "ball": {
            "kind": text,
            "centre": each(finite),
            "radius": finite,
            "norm": one_of(2, "max"),
        },
    }
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"{what} must be one of {sorted(kinds)}, got {value!r:.80}")
    object_of(value, kinds[kind], what)


def _guard(value: Any, what: str) -> None:
    rules = one_of("affine", "quadratic", "shared", "function")
    fields = {"name": text, "region": region, "rules": rules}
    if isinstance(value, dict) and "everywhere" in value:
        fields["everywhere"] = one_of(True)
    object_of(value, fields, what)


def _described(value: Any, what: str) -> None:
    """A stack of members; `member_state` looks inside."""
    object_of(value, {"kind": text, "config": _any_object}, what)


def _record(content: Any, *, anchor: bool = False) -> None:
    """The fields of ensemble.json, or of the anchor in it; what is about members is seen later."""
    fields: dict[str, Check] = {
        "about": _any_object,
        "layout": each(each(integer)),
        "blocks": each(each(integer)),
        "weights": each(each(finite)),
        "members": each(_described),
    }
    if not anchor:
        fields |= {"format": one_of(FORMAT), "version": one_of(VERSION), "arrays": text}
        if isinstance(content, dict) and "shield" in content:
            fields["shield"] = _whole_shield
    object_of(content, fields, "the anchor" if anchor else RECORD)
    counts = {len(content[name]) for name in ("blocks", "weights", "members")}
    if len(counts) != 1 or any(
        len(blocks) != len(weights)
        for blocks, weights in zip(content["blocks"], content["weights"], strict=True)
    ):
        raise ValueError("members, blocks and weights are not as many")


def _whole_shield(value: Any, what: str) -> None:
    fields: dict[str, Check] = {
        "anchor": lambda one, what: _record(one, anchor=True),
        "guards": each(_guard),
    }
    object_of(value, fields, what)


# ---- members -------------------------------------------------------------------------------------

Dimensions = tuple[int, ...]  # how many axes an array may have
FLOAT, WHOLE = np.dtype(np.float64), np.dtype(np.int64)
TREE = {
    **dict.fromkeys(("feature", "left", "right"), (WHOLE, 3)),
    "threshold": (FLOAT, 3),
    "value": (FLOAT, 4),
    "initial": (FLOAT, 2),
    "factor": (FLOAT, 1),
}
TREE_MAY = {"missing": (WHOLE, 3), "subset": (WHOLE, 3), "subsets": (WHOLE, 3)}
FLOWS = {
    **dict.fromkeys(("feature", "left", "right"), (WHOLE, 2)),
    "threshold": (FLOAT, 2),
    "slope": (FLOAT, 4),
    "offset": (FLOAT, 3),
    "group": (WHOLE, 1),
}
AFFINE = {
    **dict.fromkeys(("rule", "output", "input", "piece"), (WHOLE, 1)),
    "constant": (FLOAT, 2),
    "value": (FLOAT, 1),
    "limit": (FLOAT, 1),
    "tilt": (FLOAT, 2),
}
RULES: dict[str, dict[str, Any]] = {
    "affine": AFFINE,
    "shared": AFFINE | {"prices": (FLOAT, 2)},
    "quadratic": {"square": (FLOAT, 3), "linear": (FLOAT, 2), "limit": (FLOAT, 1)},
    "function": {},
}
NETWORK: dict[str, Check] = {
    **dict.fromkeys(("input_size", "output_size"), _size),
    **dict.fromkeys(("hidden", "groups"), each(_size)),
    **dict.fromkeys(("activation", "output"), text),
    "skip": boolean,
}
CONFIGS: dict[str, dict[str, Check]] = {
    "network": NETWORK,
    "tree": {"input_size": _size, "link": text, "single_precision": boolean},
    "constant": {"input_size": _size},
    "flows": {},
    "feedback": {"network": _described, "stages": _size},
    "side by side": {"network": _described, "sizes": each(_size)},
    "module": {"factory": text, "input_size": _size, "output_size": _size},
    "shielded": {
        "inner": _described,
        "shield": lambda value, what: object_of(
            value,
            {"anchor": _described, "guards": each(_guard), "coupled": each(each(integer))},
            what,
        ),
    },
    "completed": {
        "inner": _described,
        "completion": lambda value, what: object_of(value, {}, what),
    },
    "capped": {
        "inner": _described,
        "caps": lambda value, what: object_of(value, {"outputs": _size, "share": _class}, what),
    },
    "reconciled": {
        "inner": _described,
        "reconciliation": lambda value, what: object_of(
            value, {"chains": each(each(integer))}, what
        ),
    },
    "arranged": {
        "inner": _described,
        "set": lambda value, what: object_of(
            value,
            {"chains": each(each(integer)), "totals": each(pair_of(each(integer), finite))},
            what,
        ),
    },
    "nested": {
        "inner": _described,
        "nesting": lambda value, what: object_of(value, {"output": _nested_class}, what),
    },
}


def _class(value: Any, what: str) -> None:
    if value is not None:
        integer(value, what)


def _nested_class(value: Any, what: str) -> None:
    """A class, None, or -1 for each class against all others."""
    if value != -1:
        _class(value, what)


def member_state(record: Any, arrays: Mapping[str, NDArray[Any]]) -> MemberState:
    """The stack that a record and its arrays describe; Rejected unless it is as it is written."""
    try:
        _described(record, "a stack of members")
        kind, config = record["kind"], record["config"]
        what = f"a stack of {kind!r:.40} members"
        if kind not in CONFIGS:
            raise ValueError(f"{what} is of no known kind")
        object_of(config, CONFIGS[kind], what)
        _arrays_of(kind, config, dict(arrays), what)
    except ValueError as error:
        raise Rejected(str(error)) from error
    return MemberState(kind, config, dict(arrays))


def _arrays_of(kind: str, config: Mapping[str, Any], arrays: Arrays, what: str) -> None:
    """ValueError unless the arrays are those of the config, by name, dtype and axes."""
    if kind == "network":
        _only(arrays, *_of_network(config), what)
    elif kind == "tree":
        _only(arrays, TREE, TREE_MAY, what)
    elif kind == "constant":
        _only(arrays, {"values": (FLOAT, 2)}, {}, what)
    elif kind == "flows":
        _only(arrays, FLOWS, {}, what)
    elif kind == "feedback":
        inner = member_state(config["network"], below(arrays, "network."))
        if inner.kind != "network":
            raise ValueError(f"{what} must hold a network, got {inner.kind!r}")
        own = {"matrix": (FLOAT, 2), "source": (WHOLE, 1)}
        name, axes = ("gain", 2) if "gain_0" in arrays else ("feedback", 3)
        for stage in range(min(config["stages"], len(arrays))):
            own |= {f"{name}_{stage}": (FLOAT, axes), f"sharpness_{stage}": (FLOAT, 2)}
        if config["stages"] > len(arrays):
            raise ValueError(f"{what} has fewer stages than it says")
        _only(_without(arrays, "network."), own, {}, what)
    elif kind == "side by side":
        inner = config["network"]
        if inner["kind"] != "network":
            raise ValueError(f"{what} must hold networks, got {inner['kind']!r:.40}")
        object_of(inner["config"], NETWORK, what)
        must, may = _of_network(inner["config"])
        deeper = {name: (dtype, axes + 1) for name, (dtype, axes) in must.items()}
        _only(below(arrays, "network."), deeper, may, what)
        _only(_without(arrays, "network."), {"seen": (WHOLE, 2)}, {}, what)
    elif kind == "module":
        strange = [name for name in arrays if not name.startswith(("parameter:", "buffer:"))]
        if strange:
            raise ValueError(f"{what} has an array {strange[0]!r:.80}, which is not known")
    else:
        _wrapped(kind, config, arrays, what)


def _of_network(config: Mapping[str, Any]) -> tuple[Any, Any]:
    """The arrays that a network must and may have."""
    layers = range(len(config["hidden"]) + 1)
    must = {f"weight_{layer}": (FLOAT, 3) for layer in layers}
    must |= {f"bias_{layer}": (FLOAT, 2) for layer in layers}
    must |= {"skip": (FLOAT, 3)} if config["skip"] else {}
    return must, dict.fromkeys(("normalise_shift", "normalise_scale"), (FLOAT, 1))


def _wrapped(kind: str, config: Mapping[str, Any], arrays: Arrays, what: str) -> None:
    """The arrays of members with a layer around them: theirs, and those of the layer."""
    member_state(config["inner"], below(arrays, "inner."))
    own = _without(arrays, "inner.")
    if kind == "shielded":
        shield = below(own, "shield.")
        member_state(config["shield"]["anchor"], below(shield, "anchor."))
        _guards_arrays(config["shield"]["guards"], _without(shield, "anchor."), what)
        _only(_without(own, "shield."), {}, {}, what)
    elif kind == "completed":
        layer = {"offset": (FLOAT, 1), "slope": (FLOAT, 2), "basis": (FLOAT, 2)}
        _only(own, {f"completion.{name}": one for name, one in layer.items()}, {}, what)
    elif kind == "reconciled":
        layer = dict.fromkeys(("offset", "low", "high", "bound", "anchor"), (FLOAT, 1))
        layer |= dict.fromkeys(("slope", "basis", "matrix"), (FLOAT, 2))
        named: dict[str, Any] = {f"reconciliation.{name}": one for name, one in layer.items()}
        _only(own, {**named, "reconciliation.free": (WHOLE, 1)}, {}, what)
    elif kind == "capped":
        caps: dict[str, Any] = dict.fromkeys(("caps.output", "caps.side"), (WHOLE, 1))
        ends = ("low", "high", "least", "most", "offset")
        caps |= {f"caps.{name}": (FLOAT, 2) for name in ends}
        _only(own, caps | {"caps.slope": (FLOAT, 3)}, {}, what)
    elif kind == "arranged":
        _only(own, dict.fromkeys(("set.low", "set.high"), (FLOAT, 1)), {}, what)
    else:
        _only(own, {}, {}, what)


def _guards_arrays(guards: list[Any], arrays: Arrays, what: str) -> None:
    for number, guard in enumerate(guards):
        prefix = f"guard.{number}."
        if guard["rules"] == "quadratic" and f"{prefix}factor" in arrays:
            raise ValueError(
                f"guard {number} of {what} holds a factor of quadratic rules, as versions before "
                "0.8 wrote, in place of the rules as given"
            )
        _only(below(arrays, prefix), RULES[guard["rules"]], {}, f"guard {number} of {what}")
        arrays = _without(arrays, prefix)
    _only(arrays, {}, {}, what)


def _ensemble(record: Mapping[str, Any], arrays: Arrays, prefix: str) -> None:
    """All members and the shield of the whole, with no array left over."""
    left = below(arrays, prefix)
    for number, one in enumerate(record["members"]):
        own = f"{number}."
        member_state(one, below(left, own))
        left = _without(left, own)
    if "shield" in record:
        _ensemble(record["shield"]["anchor"], left, "anchor.")
        left = _without(left, "anchor.")
        _guards_arrays(record["shield"]["guards"], left, "the shield")
        left = {name: one for name, one in left.items() if not name.startswith("guard.")}
    _only(left, {}, {}, "the mixture")


def _without(arrays: Arrays, prefix: str) -> Arrays:
    return {name: array for name, array in arrays.items() if not name.startswith(prefix)}


def _only(arrays: Arrays, must: Mapping[str, Any], may: Mapping[str, Any], what: str) -> None:
    """ValueError unless these arrays are there, of their dtypes and axes, and no others."""
    if missing := sorted(set(must) - set(arrays)):
        raise ValueError(f"{what} lacks the array {missing[0]!r}")
    known = {**must, **may}
    for name, array in arrays.items():
        if name not in known:
            raise ValueError(f"{what} has an array {name!r:.80}, which is not known")
        dtype, axes = known[name]
        if array.dtype != dtype or array.ndim != axes:
            raise ValueError(
                f"the array {name!r} of {what} must be {dtype} with {axes} axes, got "
                f"{array.dtype} {array.shape}"
            )


def member_states(
    records: Any, arrays: Mapping[str, NDArray[Any]], prefix: str = ""
) -> list[MemberState]:
    """The stacks that a list describes; names of their arrays begin with their numbers."""
    if not isinstance(records, list):
        raise Rejected(f"members must be a list of stacks, got {records!r:.80}")
    return [
        member_state(record, below(arrays, f"{prefix}{number}."))
        for number, record in enumerate(records)
    ]
