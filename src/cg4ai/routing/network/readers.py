"""Files of SNDlib (native text and XML), and CSV of links or demands, read into a `Network`.

Both SNDlib formats mean the same: a link's capacity is what is pre-installed plus its largest
module, a demand's volume is its value times its routing unit, links are used in both directions.
Costs, admissible paths and limits on path lengths are ignored. Figures are taken as they stand
in the file. Errors name the file and the line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from cg4ai.errors import InvalidInput, did_you_mean
from cg4ai.routing.network.network import (
    Network,
    NetworkBuilder,
    link_name,
    parse_number,
    show_value,
)
from cg4ai.routing.network.parsing import parse_xml, read_text
from cg4ai.routing.network.repetita import DEMANDS, read_matrix


def read_native(path: Path) -> Network:
    """A network in SNDlib's native text format."""
    lines = read_text(path).splitlines()
    header = lines[0] if lines else ""
    if not header.startswith("?SNDlib native format") or "type: network" not in header:
        raise InvalidInput(
            f"{path}, line 1: expected '?SNDlib native format; type: network; version: 1.0', "
            f"got {header[:60]!r}; only SNDlib's native network files are read from .txt",
            code="bad-file",
        )
    builder = NetworkBuilder(path.stem)
    section, depth, seen = "", 0, set[str]()
    for position, line in enumerate(lines[1:], start=2):
        place = f"{path}, line {position}"
        words = _words(line)
        if not words:
            continue
        if not section:
            if len(words) != 2 or words[1] != "(":
                raise InvalidInput(
                    f"{place}: expected a section such as 'NODES (', got {show_value(line)}",
                    code="bad-file",
                )
            section, depth = words[0], 1
            seen.add(section)
        elif section == "META":  # free text, in which brackets mean nothing
            section = "" if words == [")"] else section
        elif section == "ADMISSIBLE_PATHS":
            depth += words.count("(") - words.count(")")
            section = section if depth > 0 else ""
        elif words == [")"]:
            section = ""
        else:
            _native_entry(builder, section, words, place)
    if section:
        raise InvalidInput(
            f"{path}, line {len(lines)}: "
            f"the section {show_value(section, quoted=False)} is not closed by ')'",
            code="bad-file",
        )
    for needed in ("NODES", "LINKS", "DEMANDS"):
        if needed not in seen:
            raise InvalidInput(
                f"{path}, line {len(lines)}: the section {needed} is missing", code="bad-file"
            )
    return builder.build(place=str(path))


def _words(line: str) -> list[str]:
    words = line.replace("(", " ( ").replace(")", " ) ").split()
    comment = next((i for i, word in enumerate(words) if word.startswith("#")), len(words))
    return words[:comment]


def _native_entry(builder: NetworkBuilder, section: str, words: list[str], place: str) -> None:
    shape = ["()".find(word) if word in ("(", ")") else 2 for word in words]
    if section == "NODES":
        if shape not in ([2], [2, 0, 2, 2, 1]):
            raise _unexpected(place, "<node> [( <x> <y> )]", words)
        position = None
        if len(words) > 1:
            x, y = (parse_number(word, what="a coordinate", place=place) for word in words[2:4])
            position = (x, y)
        builder.add_node(words[0], place=place, position=position)
    elif section == "LINKS":
        modules = words[10:-1]
        expected = [2, 0, 2, 2, 1, 2, 2, 2, 2, 0, *[2] * len(modules), 1]
        if len(words) < 11 or shape != expected or len(modules) % 2:
            form = "<link> ( <source> <target> ) <pre-installed capacity> <its cost>"
            form += " <routing cost> <setup cost> ( {<capacity> <cost>}* )"
            raise _unexpected(place, form, words)
        _add_link(builder, words[0], words[2:4], words[5], modules[::2], place)
    elif section == "DEMANDS":
        if shape != [2, 0, 2, 2, 1, 2, 2, 2]:
            form = "<demand> ( <source> <target> ) <routing unit> <value> <longest path>"
            raise _unexpected(place, form, words)
        _add_demand(builder, words[0], words[2:4], words[5:7], place)
    else:
        known = ("META", "NODES", "LINKS", "DEMANDS", "ADMISSIBLE_PATHS")
        raise InvalidInput(
            f"{place}: in the unknown section {show_value(section)}{did_you_mean(section, known)}; "
            f"expected {', '.join(known)}",
            code="unknown-name",
        )


def _unexpected(place: str, form: str, words: list[str]) -> InvalidInput:
    return InvalidInput(
        f"{place}: expected '{form}', got {' '.join(words)[:120]!r}", code="bad-file"
    )


def _add_link(
    builder: NetworkBuilder,
    identifier: str,
    ends: list[str],
    installed: str,
    modules: list[str],
    place: str,
) -> None:
    base = parse_number(installed, what="the pre-installed capacity", place=place, least=0)
    sizes = [parse_number(m, what="a module's capacity", place=place, least=0) for m in modules]
    capacity = base + max(sizes, default=0.0)
    builder.add_link(*ends, capacity=capacity, place=place, identifier=identifier)


def _add_demand(
    builder: NetworkBuilder, identifier: str, ends: list[str], amount: list[str], place: str
) -> None:
    unit = parse_number(amount[0], what="the routing unit", place=place, least=0)
    value = parse_number(amount[1], what="the demand value", place=place, least=0)
    builder.add_demand(*ends, volume=unit * value, place=place, identifier=identifier)


def read_xml(path: Path) -> Network:
    """A network in SNDlib's XML format."""
    root = parse_xml(path)
    if root.tag != "network":
        raise InvalidInput(
            f"{root.place}: expected SNDlib's <network>, got <{root.tag}>", code="bad-file"
        )
    structure, builder = root.find_one("networkStructure"), NetworkBuilder(path.stem)
    for node in structure.find_one("nodes").find_all("node"):
        position = None
        for coordinates in node.find_all("coordinates"):
            x, y = (
                parse_number(coordinates.get_content(axis), what=axis, place=coordinates.place)
                for axis in ("x", "y")
            )
            position = (x, y)
        builder.add_node(node.get_identifier(), place=node.place, position=position)
    for link in structure.find_one("links").find_all("link"):
        ends = [link.get_content("source"), link.get_content("target")]
        installed = [
            module.get_content("capacity") for module in link.find_all("preInstalledModule")
        ]
        modules = [
            module.get_content("capacity")
            for group in link.find_all("additionalModules")
            for module in group.find_all("addModule")
        ]
        first = installed[0] if installed else "0"
        _add_link(builder, link.get_identifier(), ends, first, modules, link.place)
    for demand in root.find_one("demands").find_all("demand"):
        ends = [demand.get_content("source"), demand.get_content("target")]
        unit = demand.get_content("routingUnit") if demand.find_all("routingUnit") else "1"
        amount = [unit, demand.get_content("demandValue")]
        _add_demand(builder, demand.get_identifier(), ends, amount, demand.place)
    return builder.build(place=str(path))


def read_links(path: Path) -> Network:
    """A network from a CSV of links: source, target, capacity, and maybe length, delay and both.

    `both` says whether a link can be used in both directions, each with the full capacity; all
    can where there is no such column. Nodes come in the order in which they are named.
    """
    rows = csv_records(path, ("source", "target", "capacity"), ("length", "delay", "both"))
    builder, links, known = NetworkBuilder(path.stem), list(rows), set[str]()
    ends = {(one["source"], one["target"]) for _, one in links}
    for place, one in links:
        source, target = one["source"], one["target"]
        for name in (source, target):
            if name not in known:
                builder.add_node(name, place=place)
                known.add(name)
        if "both" not in one and source != target and (target, source) in ends:
            named = show_value(link_name([source, target]), quoted=False)
            raise InvalidInput(
                f"{place}: the link {named} is given in both "
                "directions; add a column both that says yes or no, so that it is not "
                "counted twice",
                code="duplicate",
            )
        builder.add_link(
            source,
            target,
            capacity=parse_number(one["capacity"], what="capacity", place=place, least=0),
            length=parse_number(one["length"], what="length", place=place, least=0)
            if "length" in one
            else None,
            delay=parse_number(one["delay"], what="delay", place=place, least=0)
            if "delay" in one
            else None,
            place=place,
            both_ways=is_yes(one.get("both", "yes"), place),
        )
    return builder.build(place=str(path))


def is_yes(text: str, place: str) -> bool:
    """Whether a cell of the column `both` says so."""
    answers = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if text.lower() not in answers:
        raise InvalidInput(
            f"{place}: both must be yes or no, got {show_value(text)}", code="bad-file"
        )
    return answers[text.lower()]


def read_demands(path: Path, network: Network) -> dict[tuple[int, int], float]:
    """Volumes by (source, target) position from a CSV, or from a `.demands` file of REPETITA.

    Its columns are source, target, volume; or it is a matrix with the nodes as header, of which
    each line has the volumes from one node, whose name may come first.
    """
    if path.suffix.lower() == DEMANDS:
        return read_matrix(path, network.nodes)
    builder = NetworkBuilder(network.name)
    for node in network.nodes:
        builder.add_node(node, place=str(path))
    rows = list(csv_rows(path))
    header = [word.strip() for word in rows[0][1]] if rows else []
    listed = {"source", "target", "volume"} <= {word.lower() for word in header}
    known = sum(word in network.nodes for word in header)
    if len(rows) > 1 and not listed and known >= max(2, len(header) / 2):
        return _demand_matrix(path, builder, header, rows[1:])
    for place, one in csv_records(path, ("source", "target", "volume"), (), other=True):
        source, target = one["source"], one["target"]
        volume = parse_number(one["volume"], what="volume", place=place, least=0)
        builder.add_demand(
            source, target, volume=volume, place=place, identifier=f"{source}->{target}"
        )
    return builder.volumes


def _demand_matrix(
    path: Path, builder: NetworkBuilder, header: list[str], rows: list[tuple[int, list[str]]]
) -> dict[tuple[int, int], float]:
    """Demands from lines of volumes; what a node sends to itself is left out."""
    named = len(header) == len(rows) + 1
    targets = header[1:] if named else header
    for rank, (line, row) in enumerate(rows):
        place = f"{path}, line {line}"
        if len(row) != len(header) or len(rows) != len(targets):
            raise InvalidInput(
                f"{place}: expected {len(header)} values in each of {len(targets)} lines of a "
                f"matrix, got {len(row)} values in one of {len(rows)} lines; a list of demands has "
                "the header source,target,volume",
                code="bad-file",
            )
        source = row[0].strip() if named else targets[rank]
        for target, text in zip(targets, row[1:] if named else row, strict=True):
            volume = parse_number(text.strip(), what="volume", place=place, least=0)
            if source != target:
                name = f"{source}->{target}"
                builder.add_demand(source, target, volume=volume, place=place, identifier=name)
    return builder.volumes


def csv_records(
    path: Path, needed: tuple[str, ...], further: tuple[str, ...], *, other: bool = False
) -> Iterator[tuple[str, dict[str, str]]]:
    """The lines of a CSV by the names of its columns, each with its place.

    `further` columns may be there; any `other` where that is true.
    """
    rows = csv_rows(path)
    header = [word.strip().lower() for word in next(rows, (1, list[str]()))[1]]
    known = {*needed, *further}
    if any(header.count(name) != 1 for name in needed) or not (other or known >= {*header}):
        more = f" and maybe {','.join(further)}" if further else ""
        raise InvalidInput(
            f"{path}, line 1: expected a header with the columns {','.join(needed)}{more}, "
            f"got {show_value(','.join(header))}",
            code="bad-file",
        )
    for line, row in rows:
        place = f"{path}, line {line}"
        if len(row) != len(header):
            raise InvalidInput(
                f"{place}: expected {len(header)} values, got {len(row)}", code="bad-file"
            )
        yield place, dict(zip(header, (word.strip() for word in row), strict=True))


def csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV file that are not empty, each with its line."""
    rows = csv.reader(read_text(path).splitlines())
    try:
        for row in rows:
            if any(word.strip() for word in row):
                yield rows.line_num, row
    except csv.Error as error:
        raise InvalidInput(
            f"{path}, line {rows.line_num}: not readable as CSV ({error})", code="bad-file"
        ) from None
