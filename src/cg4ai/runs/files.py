"""Safe files for runs and ensembles: JSON and safetensors, written atomically, sealed, checked.

Every file carries the SHA-256 of its content: a JSON object, or a line of a JSON-lines file, in
its own field "sha256", arrays in the header of their file. What has changed since it was written
is refused when it is read; all else stays where any JSON reader looks for it.

Nothing is pickled, so loading never executes code. JSON files are strict: the floats NaN and
plus or minus infinity are written as the strings "NaN", "Infinity" and "-Infinity", which any
JSON reader accepts and `read_json` turns back into floats. A text that is one of these three words
is written with an apostrophe before it, and so is one that begins with such apostrophes already.

Files are regular files: links, pipes and devices are refused without waiting for them, and no more
is read than a file's size. docs/runs.md describes the files of a run field by field.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import math
import os
import stat
import sys
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path, PurePath
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.records import MemberState, select_prefixed

Arrays = dict[str, NDArray[Any]]

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
STORABLE = {"bool", "float16", "float32", "float64"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
SEAL = "sha256"
STACK = ("kind", "config")
QUOTE = "'"  # before a text that would be read as one of the words of NON_FINITE
DEEPEST = 100  # levels of lists and objects in JSON
LARGEST_INTEGER = 2**64  # none in JSON is as large


def write_json(path: str | Path, content: Mapping[Any, Any]) -> None:
    """Write a JSON object atomically, with its seal; takes what `to_jsonable` takes."""
    text = json.dumps(_sealed(content), indent=2, allow_nan=False)
    write_bytes(Path(path), text.encode() + b"\n")


def read_json(path: str | Path) -> dict[str, Any]:
    """The object that `write_json` wrote; RunFolderError if it has changed since."""
    path = Path(path)
    try:
        return _opened(read_bytes(path))
    except ValueError as error:
        raise make_damage_error(path, str(error)) from error


def json_line(obj: Any) -> bytes:
    """`obj` as one line of JSON without a seal, newline included: for screens and digests."""
    return json.dumps(to_jsonable(obj), allow_nan=False).encode() + b"\n"


def append_lines(path: Path, records: Sequence[Any], *, durable: bool = True) -> None:
    """Add sealed objects to a JSON-lines file; if `durable`, on disk when this returns."""
    lines = [json.dumps(_sealed(one), allow_nan=False).encode() + b"\n" for one in records]
    try:
        with open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, "ab") as file:
            file.writelines(lines)
            file.flush()
            if durable:
                os.fsync(file.fileno())
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror or error}") from error


def read_lines(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """Each complete line, newline included, with its object; none where there is no file.

    A last line without a newline was torn by a kill and is left out.
    """
    if not os.path.lexists(path):
        return []
    *lines, torn = read_bytes(path).split(b"\n")
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append((line + b"\n", _opened(line)))
        except ValueError as error:
            raise make_line_damage_error(path, number, str(error)) from error
    if _goes_on(torn):  # no kill leaves that: its newline has become something else
        raise make_line_damage_error(path, len(lines) + 1, "something follows the record")
    return found


def _goes_on(torn: bytes) -> bool:
    """Whether a whole JSON value is followed by something else."""
    text = torn.decode(errors="replace")
    try:
        return json.JSONDecoder().raw_decode(text)[1] < len(text)
    except (ValueError, RecursionError):
        return False


def write_arrays(path: str | Path, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Write named arrays (bool, integers, floats; any shape) atomically; returns their SHA-256."""
    from safetensors.numpy import save

    native = {name: _storable(name, array) for name, array in arrays.items()}
    digest = arrays_digest(native)
    write_bytes(Path(path), save(native, metadata={SEAL: digest}))
    return digest


def read_arrays(path: str | Path, sha256: str | None = None) -> Arrays:
    """What `write_arrays` wrote, same names, dtypes and shapes; RunFolderError if damaged.

    The arrays are in the order of their names, which the library that reads them leaves to chance.
    With `sha256`, what `write_arrays` returned, arrays of another save are refused too.
    """
    path = Path(path)
    arrays, digest = _checked_arrays(path)
    if sha256 is not None and sha256 != digest:
        raise make_damage_error(path, "it is not the file that was saved with the rest")
    return arrays


def member_digest(state: MemberState) -> str:
    """SHA-256 of all that a stack of members is: kind, config and arrays."""
    return _json_digest([state.kind, to_jsonable(state.config), arrays_digest(state.arrays)])


def member_record(state: MemberState) -> dict[str, Any]:
    """What JSON says of a stack of members; its arrays lie in a file of arrays."""
    return {"kind": state.kind, "config": state.config}


def member_state(record: Any, arrays: Mapping[str, NDArray[Any]]) -> MemberState:
    """The stack that `member_record` described; InvalidInput if that is not what it is."""
    kind, config = (record.get(name) if isinstance(record, dict) else None for name in STACK)
    if not isinstance(kind, str) or not isinstance(config, dict):
        raise InvalidInput(
            "a stack of members is described by a text 'kind' and an object 'config'", code="type"
        )
    return MemberState(kind, config, arrays)


def member_arrays(states: Sequence[MemberState], prefix: str = "") -> Arrays:
    """The arrays of several stacks under names of their own, for one file."""
    return {
        f"{prefix}{number}.{name}": array
        for number, state in enumerate(states)
        for name, array in state.arrays.items()
    }


def member_states(
    records: Any, arrays: Mapping[str, NDArray[Any]], prefix: str = ""
) -> list[MemberState]:
    """The stacks whose records and `member_arrays` these are; InvalidInput if they are not."""
    if not isinstance(records, list):
        raise InvalidInput(f"members must be a list of stacks, got {records!r:.80}", code="type")
    return [
        member_state(record, select_prefixed(arrays, f"{prefix}{number}."))
        for number, record in enumerate(records)
    ]


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
            f"{version}: use the version of cg4ai that wrote it",
            code="version",
        )


def to_jsonable(obj: Any, where: str = "", *, quoted: bool = False) -> Any:
    """`obj` in strict JSON types: dataclasses become dicts, sequences and arrays lists.

    Enums give their value, paths their text, non-finite floats the strings named above, and
    integer keys of mappings their digits. `where` is the place named in errors. With `quoted`,
    texts that are such strings are told apart from them, for files that are read back.
    """

    def convert(value: Any, place: str) -> Any:
        return to_jsonable(value, place, quoted=quoted)

    if isinstance(obj, Enum):
        return convert(obj.value, where)
    if isinstance(obj, np.ndarray | np.bool_ | np.integer | np.str_):
        return convert(obj.tolist(), where)
    if isinstance(obj, np.floating):
        return convert(float(obj), where)
    if isinstance(obj, str):
        return QUOTE + obj if quoted and obj.lstrip(QUOTE) in NON_FINITE else obj
    if obj is None or isinstance(obj, bool):
        return obj
    if isinstance(obj, int):
        if abs(obj) < LARGEST_INTEGER:
            return obj
        raise InvalidInput(
            f"cannot write an integer of more than 64 bits at {where.lstrip('.') or 'the top'}",
            code="unsupported",
        )
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else _non_finite_name(obj)
    if isinstance(obj, PurePath):
        return convert(str(obj), where)
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        fields = dataclasses.fields(obj)
        return {f.name: convert(getattr(obj, f.name), f"{where}.{f.name}") for f in fields}
    if isinstance(obj, Mapping):
        return {_key(key, where): convert(value, f"{where}.{key}") for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [convert(value, f"{where}[{index}]") for index, value in enumerate(obj)]
    raise InvalidInput(
        f"cannot write {type(obj).__name__} as JSON at {where.lstrip('.') or 'the top'}: use "
        "numbers, texts, booleans, None, lists, mappings, dataclasses or NumPy arrays",
        code="type",
    )


def content_digest(content: Mapping[str, Any]) -> str:
    """SHA-256 of what a JSON file says, whatever the order of its fields."""
    return _json_digest(to_jsonable(content, quoted=True))


def finite_numbers(value: Any, what: str) -> NDArray[np.float64]:
    """A list of finite floats from a file; ValueError for all else, integers too."""
    numbers = isinstance(value, list) and all(type(one) is float for one in value)
    if not numbers or not all(map(math.isfinite, value)):
        raise ValueError(f"{what} must be a list of finite floats, got {value!r:.80}")
    return np.array(value, np.float64)


def refuse_other(
    stated: Mapping[str, Any], written: Mapping[str, Any], optional: Collection[str]
) -> None:
    """ValueError unless what is `stated` is what would be `written`, types and all.

    Of what is stated only the fields that are written, and those that may be, are compared.
    """
    names = {*written, *(name for name in optional if name in stated)}
    own = {name: stated[name] for name in names if name in stated}
    found = find_difference(own, to_plain(dict(written)))
    if found is not None:
        raise ValueError(found)


def to_plain(content: Any, where: str = "") -> Any:
    """`content` as it reads back after it was written; `where` is the place named in errors."""
    return _restored(to_jsonable(content, where, quoted=True))


def find_difference(one: Any, other: Any, where: str = "it") -> str | None:
    """Where two contents of JSON files first differ, types and all; None where they are the same.

    1, 1.0 and true are three values; not a number is the same as itself.
    """
    if type(one) is not type(other):
        return f"{where} is {one!r:.60}, expected {other!r:.60}"
    if isinstance(one, dict):
        for name in one.keys() | other.keys():
            if name not in one or name not in other:
                return f"{where} {'lacks' if name not in one else 'has a field'} {name!r:.60}"
        pairs = [(one[name], other[name], f"{name} of {where}") for name in one]
    elif isinstance(one, list):
        if len(one) != len(other):
            return f"{where} has {len(one)} entries, expected {len(other)}"
        pairs = [
            (a, b, f"entry {k} of {where}") for k, (a, b) in enumerate(zip(one, other, strict=True))
        ]
    else:
        same = one == other or (one != one and other != other)
        return None if same else f"{where} is {one!r:.60}, expected {other!r:.60}"
    found = (find_difference(*pair) for pair in pairs)
    return next((each for each in found if each is not None), None)


def arrays_difference(one: Mapping[str, NDArray[Any]], other: Mapping[str, NDArray[Any]]) -> str:
    """The first array that is not the same in both, in dtype, shape and numbers; empty: none."""
    for name in sorted(one.keys() | other.keys()):
        if name not in one or name not in other:
            return f"{'lacks' if name not in one else 'has'} the array {name!r:.60}"
        a, b = (_storable(name, each[name]) for each in (one, other))
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"has the array {name!r} of {a.dtype} {a.shape}, expected {b.dtype} {b.shape}"
        if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            return f"has other numbers in the array {name!r} than are read from it"
    return ""


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
    """All of a regular file in a run's folder; RunFolderError if it cannot be read."""
    try:
        with open_regular(path, os.O_RDONLY, "rb") as file:
            return file.read(os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise RunFolderError(
            f"cannot read {path}: {error.strerror or error}; check the folder's name"
        ) from error


def read_given(path: Path) -> bytes:
    """All of a file that a user named; it may be a link. OSError if it is not a regular file."""
    with open_regular(path, os.O_RDONLY, "rb", links=True) as file:
        return file.read(os.fstat(file.fileno()).st_size)


def open_regular(path: Path, flags: int, mode: str, *, links: bool = False) -> IO[bytes]:
    """A regular file, opened without waiting for a writer at the other end of a pipe.

    OSError for all else; RunFolderError for a symbolic link, unless `links` may be followed.
    """
    if not links:
        refuse_link(path)
        flags |= getattr(os, "O_NOFOLLOW", 0)
    flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return os.fdopen(descriptor, mode)
    except BaseException:
        os.close(descriptor)
        raise


def refuse_link(path: Path) -> None:
    """RunFolderError for a symbolic link: it would lead out of the run's folder."""
    if path.is_symlink():
        raise make_damage_error(path, "it is a symbolic link, and a run's files lie in its folder")


def make_damage_error(path: Path, what: str) -> RunFolderError:
    """The error for a file that is not as it was written."""
    return RunFolderError(f"{path} is damaged: {what}; restore it from a copy or run again")


def make_line_damage_error(path: Path, number: int, what: str) -> RunFolderError:
    """The same for one line of a file."""
    return RunFolderError(
        f"{path} is damaged: line {number} is not as it was written ({what}); delete that line "
        "to go on without it"
    )


def sync_folder(folder: Path) -> None:
    """Make new, renamed and removed names in a folder survive a power cut."""
    if sys.platform == "win32":  # folders cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_unwritable_error(folder: Path, error: OSError) -> RunFolderError:
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
        "keys must be texts or integers",
        code="type",
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
        if plain.startswith(QUOTE) and plain.lstrip(QUOTE) in NON_FINITE:
            return plain[1:]
        return NON_FINITE.get(plain, plain)
    return plain


def _sealed(content: Mapping[Any, Any]) -> dict[str, Any]:
    plain = to_jsonable(content, quoted=True)
    if not isinstance(plain, dict) or SEAL in plain:
        raise InvalidInput(
            f"what is sealed must be a mapping without a key {SEAL!r} of its own", code="type"
        )
    return {SEAL: _json_digest(plain), **plain}


def _opened(data: bytes) -> dict[str, Any]:
    """The object of sealed JSON; ValueError says what is wrong with it."""
    content = _parsed(data)
    if not isinstance(content, dict) or SEAL not in content:
        raise ValueError(f"it has no field {SEAL!r}, so this version of cg4ai did not write it")
    seal = content.pop(SEAL)
    if _json_digest(content) != seal:
        raise ValueError("its content does not match its SHA-256")
    opened: dict[str, Any] = _restored(content)
    return opened


def _parsed(data: bytes) -> Any:
    """What JSON says, where it says one thing alone: no key twice, no number that is cut."""
    try:
        content = json.loads(
            data.decode(),
            parse_constant=_refuse_word,
            parse_float=_finite,
            parse_int=_whole,
            object_pairs_hook=_no_key_twice,
        )
        _refuse_deep(content)
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error
    except ValueError as error:  # not UTF-8, or not JSON
        raise ValueError(f"it is not valid JSON ({error})") from error
    return content


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object has a key twice")
    return made


def _refuse_deep(content: Any, levels: int = DEEPEST) -> None:
    if not isinstance(content, dict | list):
        return
    if not levels:
        raise ValueError(f"it has more than {DEEPEST} levels of lists and objects")
    for one in content.values() if isinstance(content, dict) else content:
        _refuse_deep(one, levels - 1)


def _refuse_word(name: str) -> float:
    raise ValueError(f"the bare word {name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"the number {digits[:40]} is too large")
    return value


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > len(str(LARGEST_INTEGER)) or abs(int(digits)) >= LARGEST_INTEGER:
        raise ValueError(f"the integer {digits[:40]} takes more than 64 bits")
    return int(digits)


def _json_digest(plain: Any) -> str:
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _storable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    # C order matters: safetensors writes the memory of a transposed array as it lies
    native = np.asarray(array, order="C")
    if name == "__metadata__" or native.dtype.name not in STORABLE:
        raise InvalidInput(
            f"cannot store the array {name!r} of dtype {native.dtype}: use bool, integer or "
            "float arrays under names other than '__metadata__'",
            code="unsupported",
        )
    return native.astype(native.dtype.newbyteorder("="), copy=False)


def arrays_digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 over names, dtypes, shapes and bytes, whatever the order of the names."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = _storable(name, arrays[name])
        total.update(json.dumps([name, str(array.dtype), list(array.shape)]).encode())
        total.update(array.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def _checked_arrays(path: Path) -> tuple[Arrays, str]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    data = read_bytes(path)
    try:
        arrays = dict(sorted(load(data).items()))
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise make_damage_error(path, f"it is not a complete safetensors file ({error})") from error
    stored = header.get("__metadata__", {}).get(SEAL)
    digest = arrays_digest(arrays)
    if stored is None:
        raise make_damage_error(path, "it carries no SHA-256")
    if stored != digest:
        raise make_damage_error(path, "its arrays do not match its SHA-256")
    return arrays, digest
