"""Read a certificate file: first line, digest, archive, claim; any altered byte is refused here."""

from __future__ import annotations

import hashlib
import io
import math
import re
import tokenize
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai_checker.errors import Rejected, Unreadable
from cg4ai_checker.folder_reader import read_file, strict_json

FIRST_LINE = re.compile(rb"cg4ai-certificate 3 sha256 ([0-9a-f]{64})")
CLAIM = "claim"
ENDING = ".npy"
# what `zipfile` and NumPy's reader of headers raise for bytes that are no archive of arrays
UNREADABLE = (
    *(zipfile.BadZipFile, ValueError, OSError, EOFError, KeyError, OverflowError, SyntaxError),
    *(tokenize.TokenError, NotImplementedError, RecursionError, MemoryError),
)


@dataclass(frozen=True)
class Content:
    """A file whose digest fits: its claim as JSON gives it, and its other arrays by name."""

    digest: str
    claim: Any
    arrays: dict[str, NDArray[Any]]
    size: int  # bytes of the file, by which the memory for checking it is limited


def read_certificate(path: str | Path) -> Content:
    """The content of a file; Rejected if it is altered, Unreadable if it cannot be read."""
    try:
        data = read_file(Path(path), links=True)
    except OSError as error:
        raise Unreadable(
            f"cannot read {path}: {error.strerror or error}; name a certificate file"
        ) from error
    return parse_certificate(data)


def parse_certificate(data: bytes) -> Content:
    """As `read_certificate`, for bytes."""
    first, newline, rest = data.partition(b"\n")
    found = FIRST_LINE.fullmatch(first)
    if not newline or found is None:
        raise Rejected(
            "the first line is not 'cg4ai-certificate 3 sha256 <digest>': the file is altered or "
            "no certificate",
            code="altered",
        )
    digest = hashlib.sha256(rest).hexdigest()
    if digest != found[1].decode():
        raise Rejected("the digest does not fit the content: the file was altered", code="altered")
    arrays = _unpacked(rest)
    if CLAIM not in arrays:
        raise Rejected("the archive holds no claim")
    return Content(digest, _claim(arrays.pop(CLAIM)), arrays, len(data))


def _unpacked(data: bytes) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_entries(entries, len(data))
            return {
                entry.filename.removesuffix(ENDING): _array(archive.read(entry))
                for entry in entries
            }
    except UNREADABLE as error:
        if isinstance(error, Rejected):
            raise
        raise Rejected(f"the archive cannot be read: {error}") from error


def _check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    """Rejected unless all entries are arrays that lie in the archive as they are, side by side."""
    names = [entry.filename for entry in entries]
    if len(set(names)) != len(names):
        raise Rejected("the archive holds a name twice", code="duplicate")
    # with and without the ending would be one array to some readers
    if not all(name.endswith(ENDING) for name in names):
        raise Rejected(f"the archive holds a name that does not end in {ENDING}")
    # a packed entry could grow without end
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise Rejected("the archive is compressed; certificates are not")
    if any(entry.flag_bits & 1 for entry in entries):
        raise Rejected("the archive is encrypted; certificates are not")
    # entries may lie on top of each other, each as large as the file
    if sum(max(entry.file_size, entry.compress_size) for entry in entries) > size:
        raise Rejected("the entries of the archive claim more bytes than it has")


def _array(raw: bytes) -> NDArray[Any]:
    """One `.npy` entry; its header must ask for exactly the bytes that follow it."""
    stream = io.BytesIO(raw)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise Rejected("the archive holds an array of another format than .npy 1.0")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    length = len(raw) - stream.tell()
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != length:
        raise Rejected("the archive holds an array whose size is not that of its bytes")
    flat = np.frombuffer(raw, dtype, offset=stream.tell()).copy() if length else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if by_columns else "C")


def _claim(raw: NDArray[Any]) -> Any:
    if raw.dtype != np.uint8 or raw.ndim != 1:
        raise Rejected("the claim must be bytes")
    try:
        return strict_json(raw.tobytes())
    except ValueError as error:
        raise Rejected(f"the claim is no valid JSON: {error}") from error
