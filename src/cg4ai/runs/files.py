"""Safe files for runs and ensembles: JSON and safetensors, written atomically, checked when read.

Nothing is pickled, so loading never executes code. JSON files are strict: the floats NaN and
plus or minus infinity are written as the strings "NaN", "Infinity" and "-Infinity", which any
JSON reader accepts and `read_json` turns back into floats; a text that is exactly one of these
three words therefore reads back as a float.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.records import MemberState

Arrays = dict[str, NDArray[Any]]

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
STORABLE = {"bool", "float16", "float32", "float64"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
MEMBERS_FORMAT = "cg4ai-members"
MEMBERS_VERSION = 1


def write_json(path: str | Path, obj: Any) -> None:
    """Write `obj` atomically; takes what `jsonable` takes."""
    text = json.dumps(jsonable(obj), indent=2, allow_nan=False)
    write_bytes(Path(path), text.encode() + b"\n")


def read_json(path: str | Path) -> Any:
    """What `write_json` wrote, as dicts, lists, texts, numbers, booleans and None."""
    return _restored(_parsed(Path(path)))


def json_line(obj: Any) -> bytes:
    """`obj` as one line of a JSON-lines file, newline included."""
    return json.dumps(jsonable(obj), allow_nan=False).encode() + b"\n"


def parse_json_line(line: bytes) -> Any:
    """The object of one line; ValueError if it is not strict JSON."""
    return _restored(_strict(line))


def write_sealed_json(path: str | Path, content: Any) -> None:
    """Like `write_json`, wrapped with a SHA-256 so that `read_sealed_json` notices damage."""
    plain = jsonable(content)
    write_json(path, {"sha256": _json_digest(plain), "content": plain})


def read_sealed_json(path: str | Path) -> Any:
    """The content that `write_sealed_json` wrote; RunFolderError if it has changed since."""
    document = _parsed(Path(path))
    if not isinstance(document, dict) or set(document) != {"sha256", "content"}:
        raise _damaged(Path(path), "it must be a JSON object with 'sha256' and 'content'")
    if _json_digest(document["content"]) != document["sha256"]:
        raise _damaged(Path(path), "its content does not match its SHA-256")
    return _restored(document["content"])


def write_arrays(path: str | Path, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Write named arrays (bool, integers, floats; any shape) atomically; returns their SHA-256."""
    from safetensors.numpy import save

    native = {name: _storable(name, array) for name, array in arrays.items()}
    digest = _arrays_digest(native)
    write_bytes(Path(path), save(native, metadata={"sha256": digest}))
    return digest


def read_arrays(path: str | Path) -> Arrays:
    """What `write_arrays` wrote, same names, dtypes and shapes; RunFolderError if damaged."""
    return _checked_arrays(Path(path))[0]


def save_members(folder: str | Path, stem: str, members: Sequence[MemberState]) -> None:
    """Write a list of member stacks as `<stem>.safetensors` and then `<stem>.json`."""
    arrays: Arrays = {}
    entries = []
    for index, state in enumerate(members):
        arrays |= {f"{index}.{name}": array for name, array in state.arrays.items()}
        names = list(state.arrays)
        entries.append({"kind": state.kind, "config": state.config, "arrays": names})
    digest = write_arrays(Path(folder) / f"{stem}.safetensors", arrays)
    header = {"format": MEMBERS_FORMAT, "version": MEMBERS_VERSION, "arrays_sha256": digest}
    write_sealed_json(Path(folder) / f"{stem}.json", header | {"members": entries})


def load_members(folder: str | Path, stem: str) -> list[MemberState]:
    """The list that `save_members` wrote; RunFolderError if either file is missing or damaged."""
    path = Path(folder) / f"{stem}.json"
    header = read_sealed_json(path)
    check_format(path, header, expected=MEMBERS_FORMAT, version=MEMBERS_VERSION)
    arrays_path = Path(folder) / f"{stem}.safetensors"
    arrays, digest = _checked_arrays(arrays_path)
    if digest != header["arrays_sha256"]:
        raise _damaged(arrays_path, f"it is not the file that {path.name} was saved with")
    return [
        MemberState(
            entry["kind"],
            entry["config"],
            {name: arrays[f"{index}.{name}"] for name in entry["arrays"]},
        )
        for index, entry in enumerate(header["members"])
    ]


def member_digest(state: MemberState) -> str:
    """SHA-256 of all that a stack of members is: kind, config and arrays."""
    native = {name: _storable(name, array) for name, array in state.arrays.items()}
    return _json_digest([state.kind, jsonable(state.config), _arrays_digest(native)])


def check_format(path: Path, header: Any, *, expected: str, version: int) -> None:
    """RunFolderError unless `header` is a dict of this format and version."""
    found = header.get("format") if isinstance(header, dict) else None
    if found != expected:
        raise RunFolderError(
            f"{path} has the format {found!r}, not {expected!r}: name a folder that cg4ai wrote"
        )
    if header.get("version") != version:
        raise RunFolderError(
            f"{path} has version {header.get('version')!r} and this cg4ai reads version "
            f"{version}: use the version of cg4ai that wrote it"
        )


def jsonable(obj: Any, where: str = "") -> Any:
    """`obj` in strict JSON types: dataclasses become dicts, sequences and arrays lists.

    Enums give their value, paths their text, non-finite floats the strings named above, and
    integer keys of mappings their digits. `where` is the place named in errors.
    """
    if isinstance(obj, Enum):
        return jsonable(obj.value, where)
    if isinstance(obj, np.ndarray | np.bool_ | np.integer | np.str_):
        return jsonable(obj.tolist(), where)
    if isinstance(obj, np.floating):
        return jsonable(float(obj), where)
    if obj is None or isinstance(obj, bool | int | str):
        return obj
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else _non_finite_name(obj)
    if isinstance(obj, PurePath):
        return str(obj)
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        fields = dataclasses.fields(obj)
        return {f.name: jsonable(getattr(obj, f.name), f"{where}.{f.name}") for f in fields}
    if isinstance(obj, Mapping):
        return {_key(key, where): jsonable(value, f"{where}.{key}") for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [jsonable(value, f"{where}[{index}]") for index, value in enumerate(obj)]
    raise InvalidInput(
        f"cannot write {type(obj).__name__} as JSON at {where.lstrip('.') or 'the top'}: use "
        "numbers, texts, booleans, None, lists, mappings, dataclasses or NumPy arrays"
    )


def write_bytes(path: Path, data: bytes) -> None:
    """Put `data` at `path` so that a crash at any moment leaves the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)
    except OSError as error:
        raise RunFolderError(
            f"cannot write {path}: {error.strerror or error}; check that the folder exists, may "
            "be written and has free space"
        ) from error


def read_bytes(path: Path) -> bytes:
    """All of a file; RunFolderError if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise RunFolderError(
            f"cannot read {path}: {error.strerror or error}; check the folder's name"
        ) from error


def sync_folder(folder: Path) -> None:
    """Make new, renamed and removed names in a folder survive a power cut."""
    if sys.platform == "win32":  # folders cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(folder: Path, error: OSError) -> RunFolderError:
    """The error for a folder in which nothing can be made."""
    return RunFolderError(
        f"cannot write to {folder}: {error.strerror or error}; choose another --out or change "
        "the folder's permissions"
    )


def _key(key: object, where: str) -> str:
    if isinstance(key, Enum):
        return _key(key.value, where)
    if isinstance(key, str):
        return str(key)
    if isinstance(key, int | np.integer) and not isinstance(key, bool):
        return str(int(key))
    raise InvalidInput(
        f"cannot write the key {key!r} at {where.lstrip('.') or 'the top'} as JSON: "
        "keys must be texts or integers"
    )


def _non_finite_name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def _restored(plain: Any) -> Any:
    if isinstance(plain, dict):
        return {key: _restored(value) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_restored(value) for value in plain]
    if isinstance(plain, str):
        return NON_FINITE.get(plain, plain)
    return plain


def _parsed(path: Path) -> Any:
    data = read_bytes(path)
    try:
        return _strict(data)
    except ValueError as error:  # not UTF-8, or not JSON
        raise _damaged(path, f"it is not valid JSON ({error})") from error
    except RecursionError as error:
        raise _damaged(path, "its JSON is nested too deeply") from error


def _strict(data: bytes) -> Any:
    return json.loads(data.decode(), parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"the bare word {name} is not JSON")


def _json_digest(plain: Any) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _storable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    # C order matters: safetensors writes the memory of a transposed array as it lies
    native = np.asarray(array, order="C")
    if name == "__metadata__" or native.dtype.name not in STORABLE:
        raise InvalidInput(
            f"cannot store the array {name!r} of dtype {native.dtype}: use bool, integer or "
            "float arrays under names other than '__metadata__'"
        )
    return native.astype(native.dtype.newbyteorder("="), copy=False)


def _arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, whatever the order of the names."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        total.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
        total.update(array.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def _checked_arrays(path: Path) -> tuple[Arrays, str]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    data = read_bytes(path)
    try:
        arrays = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, f"it is not a complete safetensors file ({error})") from error
    stored = header.get("__metadata__", {}).get("sha256")
    digest = _arrays_digest(arrays)
    if stored is None:
        raise _damaged(path, "it carries no SHA-256")
    if stored != digest:
        raise _damaged(path, "its arrays do not match its SHA-256")
    return arrays, digest


def _damaged(path: Path, what: str) -> RunFolderError:
    return RunFolderError(f"{path} is damaged: {what}; restore it from a copy or run again")
