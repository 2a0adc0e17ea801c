"""Files of measured traffic, read into `Traffic`: SNDlib's dynamic matrices, CSV and npz.

SNDlib has an XML file per time, in a folder or an archive (.tgz, .tar.gz, .tar, .zip). A CSV file
has a line per time, source and target (columns time, source, target, volume), or a line per time
with a column for each pair, `source->target`. An npz file has `matrices` (T, N, N), `nodes` and
`times`. REPETITA has a `.demands` file per matrix, in a folder, which names nodes by their position
in the network. What a list of demands does not name at some time was not there: zero. Errors name
the file, and the line where there are lines.
"""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cg4ai.data import Array
from cg4ai.errors import InvalidInput
from cg4ai.routing.demands.traffic import Pair, Traffic, moments_of
from cg4ai.routing.network.instance import network_of
from cg4ai.routing.network.network import Network, parse_number, show_value
from cg4ai.routing.network.parsing import Element, parse_xml, parse_xml_text
from cg4ai.routing.network.readers import csv_rows
from cg4ai.routing.network.repetita import DEMANDS, read_matrix
from cg4ai.runs import read_given

TIME_IN_NAME = re.compile(r"\d{8}-?\d{4}(?:\d{2})?$")
LARGEST_FILE = 200_000_000  # bytes of one file in an archive: a matrix takes thousands
LONG = ("time", "source", "target", "volume")
ARCHIVES = (".tgz", ".tar.gz", ".tar", ".zip")


def read_traffic(path: str | Path, network: str | Path | Network | None = None) -> Traffic:
    """The traffic of a file, folder or archive; see the module for what is read.

    `network`, read as by `instance`, is needed for `.demands` files alone.
    """
    path = Path(path)
    name = path.name.lower()
    try:
        if name.endswith(DEMANDS) or (path.is_dir() and any(path.glob(f"*{DEMANDS}"))):
            return _from_demands(path, None if network is None else network_of(network))
        if path.is_dir() or name.endswith(ARCHIVES) or name.endswith(".xml"):
            return _from_xml(path)
        if name.endswith(".csv"):
            return _from_csv(path)
        if name.endswith(".npz"):
            return _from_npz(path)
    except InvalidInput as error:
        if str(path) in str(error):
            raise
        raise InvalidInput(f"{path}: {error}") from None
    raise InvalidInput(
        f"{path}: expected a folder or an archive ({', '.join(ARCHIVES)}) of SNDlib's XML "
        f"matrices, a folder of {DEMANDS} files, a .csv or a .npz file",
        code="bad-file",
    )


@dataclass
class _TrafficCollection:
    """Volumes as they are read, by time and pair; nodes and times in the order of appearance."""

    place: str
    volumes: dict[str, dict[Pair, float]] = field(default_factory=dict)
    nodes: dict[str, None] = field(default_factory=dict)

    def add(self, time: str, pair: Pair, volume: float, *, place: str) -> None:
        listed = self.volumes.setdefault(time, {})
        if pair in listed:
            raise InvalidInput(
                f"{place}: the traffic {show_value('->'.join(pair), quoted=False)} at "
                f"{show_value(time)} is given twice; remove one",
                code="duplicate",
            )
        listed[pair] = volume
        self.nodes.update(dict.fromkeys(pair))

    def to_traffic(self, *, ordered: bool) -> Traffic:
        """The matrices; with `ordered` in the order of their times, else as they were given."""
        if not self.volumes or not self.nodes:
            raise InvalidInput(
                f"{self.place}: has no traffic; expected one matrix at least", code="empty"
            )
        times = list(self.volumes)
        if ordered:
            moments = moments_of(times)
            times = [times[rank] for rank in sorted(range(len(times)), key=moments.__getitem__)]
        index = {name: position for position, name in enumerate(self.nodes)}
        matrices = np.zeros((len(times), len(index), len(index)))
        for rank, time in enumerate(times):
            for (source, target), volume in self.volumes[time].items():
                matrices[rank, index[source], index[target]] = volume
        return Traffic(tuple(times), tuple(index), matrices, self._notes())

    def _notes(self) -> tuple[str, ...]:
        pairs = {pair for listed in self.volumes.values() for pair in listed}
        short = sum(len(listed) < len(pairs) for listed in self.volumes.values())
        if not short:
            return ()
        return (
            f"at {short} of {len(self.volumes)} times some of the {len(pairs)} pairs of nodes are "
            "not listed: taken as no traffic",
        )


# ---- SNDlib's dynamic matrices ------------------------------------------------------------------


def _from_xml(path: Path) -> Traffic:
    found = _TrafficCollection(str(path))
    listed: tuple[str, ...] | None = None
    for name, root in _documents(path):
        if root.tag != "network":
            raise InvalidInput(
                f"{root.place}: expected SNDlib's <network>, got <{root.tag}>", code="bad-file"
            )
        nodes = tuple(
            node.get_identifier()
            for structure in root.find_all("networkStructure")
            for group in structure.find_all("nodes")
            for node in group.find_all("node")
        )
        if listed is not None and nodes != listed:
            raise InvalidInput(
                f"{root.place}: has {len(nodes)} nodes that differ from the {len(listed)} of the "
                "files before it; all matrices must have the same nodes in the same order",
                code="conflict",
            )
        listed = nodes
        found.nodes.update(dict.fromkeys(nodes))
        _add_matrix(found, _time(root, name), root, nodes)
    return found.to_traffic(ordered=True)


def _add_matrix(
    found: _TrafficCollection, time: str, root: Element, nodes: tuple[str, ...]
) -> None:
    if time in found.volumes:
        raise InvalidInput(
            f"{root.place}: the time {show_value(time)} is given twice; remove a file",
            code="duplicate",
        )
    found.volumes[time] = {}
    for demand in root.find_one("demands").find_all("demand"):
        source, target = demand.get_content("source"), demand.get_content("target")
        for name in (source, target):
            if nodes and name not in nodes:
                raise InvalidInput(
                    f"{demand.place}: names the node {show_value(name)}, which the file does "
                    "not list",
                    code="unknown-name",
                )
        volume = parse_number(
            demand.get_content("demandValue"), what="demandValue", place=demand.place, least=0
        )
        found.add(time, (source, target), volume, place=demand.place)


def _time(root: Element, name: str) -> str:
    """Of a matrix: as its <meta> says, else from the name of its file."""
    for meta in root.find_all("meta"):
        for time in meta.find_all("time"):
            if time.text.strip():
                return time.text.strip()
    stem = Path(name).stem
    inside = TIME_IN_NAME.search(stem)
    return inside[0] if inside else stem


def _documents(path: Path) -> Iterator[tuple[str, Element]]:
    """The XML files of a folder or archive by their names, or the one file itself."""
    if path.is_dir():
        for file in sorted(path.rglob("*.xml")):
            yield file.name, parse_xml(file)
    elif path.suffix.lower() == ".xml":
        yield path.name, parse_xml(path)
    else:
        for name, content in sorted(_members(path)):
            place = f"{path}, {name}"
            try:
                text = content.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise InvalidInput(
                    f"{place}: is not UTF-8 text ({error.reason})", code="bad-file"
                ) from None
            yield name, parse_xml_text(text, place)


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """What the XML files of an archive hold; nothing of it is written to disk."""
    try:
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(io.BytesIO(read_given(path))) as archive:
                for one in archive.infolist():
                    if _wanted(path, one.filename, one.file_size):
                        yield one.filename, archive.read(one)
        else:
            with tarfile.open(fileobj=io.BytesIO(read_given(path))) as packed:
                for member in packed:
                    if member.isfile() and _wanted(path, member.name, member.size):
                        stream = packed.extractfile(member)
                        yield member.name, stream.read() if stream is not None else b""
    except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise InvalidInput(
            f"{path}: cannot be read as an archive ({error})", code="bad-file"
        ) from None


def _wanted(path: Path, name: str, size: int) -> bool:
    if not name.lower().endswith(".xml"):
        return False
    if size > LARGEST_FILE:
        raise InvalidInput(
            f"{path}, {name}: has {size} bytes, expected at most {LARGEST_FILE} of one matrix",
            code="memory",
        )
    return True


# ---- REPETITA's matrices -------------------------------------------------------------------------


def _from_demands(path: Path, network: Network | None) -> Traffic:
    """Files of one network in the order of their names, NAME.0000.demands and so on."""
    if network is None:
        raise InvalidInput(
            f"{path}: {DEMANDS} files name nodes by their position in a network; give the network, "
            "read_traffic(folder, network)",
            code="missing-values",
        )
    files = sorted(path.glob(f"*{DEMANDS}")) if path.is_dir() else [path]
    files = [file for file in files if file.name.startswith(f"{network.name}.")] or files
    others = {file.stem.rpartition(".")[0] for file in files}
    if len(others) > 1:
        raise InvalidInput(
            f"{path}: holds matrices of several networks ({', '.join(sorted(others)[:3])}...), "
            f"and none of {network.name}; give a folder of one",
            code="conflict",
        )
    found = _TrafficCollection(str(path), nodes=dict.fromkeys(network.nodes))
    for file in files:
        time = file.stem.rpartition(".")[2]
        found.volumes[time] = {
            (network.nodes[source], network.nodes[target]): volume
            for (source, target), volume in read_matrix(file, network.nodes).items()
        }
    return found.to_traffic(ordered=True)


# ---- CSV and npz --------------------------------------------------------------------------------


def _from_csv(path: Path) -> Traffic:
    rows = csv_rows(path)
    header = [word.strip() for word in next(rows, (1, list[str]()))[1]]
    lower = [word.lower() for word in header]
    pairs = [_pair(word) for word in header[1:]]
    found = _TrafficCollection(str(path))
    if all(lower.count(column) == 1 for column in LONG):
        columns = [lower.index(column) for column in LONG]
        for line, row in rows:
            place = f"{path}, line {line}"
            time, source, target, text = (_fitting(row, header, place)[c] for c in columns)
            volume = parse_number(text, what="volume", place=place, least=0)
            found.add(time, (source, target), volume, place=place)
    elif lower[:1] == ["time"] and pairs and all(pair is not None for pair in pairs):
        for line, row in rows:
            place = f"{path}, line {line}"
            time, *volumes = _fitting(row, header, place)
            if time in found.volumes:
                raise InvalidInput(
                    f"{place}: the time {show_value(time)} is given twice", code="duplicate"
                )
            for pair, text in zip(pairs, volumes, strict=True):
                assert pair is not None
                volume = parse_number(text, what=f"{'->'.join(pair)}", place=place, least=0)
                found.add(time, pair, volume, place=place)
    else:
        raise InvalidInput(
            f"{path}, line 1: expected the columns time,source,target,volume, or time and a column "
            f"source->target for each pair of nodes, got {show_value(','.join(header))}",
            code="bad-file",
        )
    return found.to_traffic(ordered=False)


def _pair(word: str) -> Pair | None:
    source, arrow, target = (part.strip() for part in word.partition("->"))
    return (source, target) if arrow and source and target else None


def _fitting(row: list[str], header: list[str], place: str) -> list[str]:
    """The values of a row, if there is one for each column."""
    if len(row) != len(header):
        raise InvalidInput(f"{place}: expected {len(header)} values, got {len(row)}", code="shape")
    return [value.strip() for value in row]


def _from_npz(path: Path) -> Traffic:
    try:
        packed = io.BytesIO(read_given(path))
        if not zipfile.is_zipfile(packed):
            raise InvalidInput(
                f"{path}: is not an npz file; write one with numpy.savez", code="bad-file"
            )
        with np.load(packed, allow_pickle=False) as stored:
            held = {name: np.asarray(stored[name]) for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidInput(
            f"{path}: cannot be read as an npz file ({error})", code="bad-file"
        ) from None
    missing = [name for name in ("matrices", "nodes") if name not in held]
    if missing:
        raise InvalidInput(
            f"{path}: has no array {show_value(missing[0])}, but {show_value(', '.join(held))}; "
            "expected "
            "matrices (T, N, N), nodes (N,) and times (T,)",
            code="bad-file",
        )
    matrices: Array = held["matrices"]
    if matrices.ndim != 3 or matrices.dtype.kind not in "fiu":
        raise InvalidInput(
            f"{path}: matrices must be numbers of shape (T, N, N), got {matrices.dtype} of shape "
            f"{matrices.shape}",
            code="shape",
        )
    times = held.get("times", np.arange(len(matrices)))
    names = tuple(str(name) for name in held["nodes"].ravel())
    return Traffic(tuple(str(time) for time in times.ravel()), names, matrices)
