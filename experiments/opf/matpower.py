"""Reads MATPOWER case files (format version 2) as far as a DC optimal power flow needs them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cg4ai.errors import InvalidInput
from cg4ai.records import Array

# columns that are read, as MATPOWER numbers them from 0
BUS = {"number": 0, "type": 1, "load": 2, "shunt": 4}
GEN = {"bus": 0, "status": 7, "pmax": 8, "pmin": 9}
BRANCH = {"from": 0, "to": 1, "x": 3, "rate": 5, "ratio": 8, "shift": 9, "status": 10}
TABLES = {"bus": BUS, "gen": GEN, "branch": BRANCH}
POLYNOMIAL = 2  # the model of gencost that is supported; 1 is piecewise linear


@dataclass(frozen=True, eq=False)
class Case:
    """The tables of a file, one row per element, and `costs` (generators, 3): c2, c1, c0.

    Powers are in MW, shifts in degrees, costs in the file's money per hour.
    """

    name: str
    base: float
    bus: Array
    gen: Array
    branch: Array
    costs: Array

    def column(self, table: str, name: str) -> Array:
        """One column of a table by the names above."""
        values: Array = getattr(self, table)[:, TABLES[table][name]]
        return values


def read_case(path: Path) -> Case:
    """The case in a file; InvalidInput says what is missing or not supported."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}", code="bad-file") from error
    plain = re.sub(r"%[^\n]*", "", text)
    missing = [name for name in (*TABLES, "gencost") if f"mpc.{name}" not in _statements(plain)]
    if missing:
        raise InvalidInput(
            f"{path.name} has no table {', '.join(f'mpc.{name}' for name in missing)}; a MATPOWER "
            "case has mpc.bus, mpc.gen, mpc.branch and mpc.gencost",
            code="bad-file",
        )
    version = re.search(r"mpc\.version\s*=\s*'?\"?(\w+)", plain)
    if version is not None and version.group(1) != "2":
        raise InvalidInput(
            f"{path.name} is of MATPOWER format version {version.group(1)}; version 2 is read",
            code="unsupported",
        )
    tables = {name: _read_table(plain, name, path.name) for name in (*TABLES, "gencost")}
    for name, columns in TABLES.items():
        needed = max(columns.values()) + 1
        if tables[name].shape[1] < needed:
            raise InvalidInput(
                f"mpc.{name} of {path.name} has {tables[name].shape[1]} columns, at least {needed} "
                "are needed",
                code="bad-file",
            )
    costs = _read_costs(tables["gencost"], len(tables["gen"]), path.name)
    base = _read_base(plain, path.name)
    return Case(path.stem, base, tables["bus"], tables["gen"], tables["branch"], costs)


def _statements(text: str) -> set[str]:
    return set(re.findall(r"(mpc\.\w+)\s*=", text))


def _read_base(text: str, file: str) -> float:
    found = re.search(r"mpc\.baseMVA\s*=\s*([-+.\deE]+)", text)
    base = 0.0 if found is None else _read_number(found.group(1), "mpc.baseMVA", file)
    if not 0 < base < np.inf:
        raise InvalidInput(f"{file} needs mpc.baseMVA, a positive number", code="bad-file")
    return base


def _read_number(word: str, where: str, file: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise InvalidInput(f"{where} of {file} holds {word[:20]!r}", code="bad-file") from None


def _read_table(text: str, name: str, file: str) -> Array:
    """Rows end with a semicolon or a line, numbers are separated by spaces or commas."""
    found = re.search(rf"mpc\.{name}\s*=\s*\[(.*?)\]", text, re.DOTALL)
    if found is None:
        raise InvalidInput(f"mpc.{name} of {file} is not a table [...]", code="bad-file")
    joined = re.sub(r"\.\.\.[^\n]*\n", " ", found.group(1))
    rows = [row.replace(",", " ").split() for row in re.split(r"[;\n]", joined) if row.strip()]
    if not rows:
        raise InvalidInput(f"mpc.{name} of {file} is empty", code="empty")
    widths = {len(row) for row in rows}
    if len(widths) > 1:
        raise InvalidInput(
            f"rows of mpc.{name} of {file} have {min(widths)} to {max(widths)} numbers",
            code="bad-file",
        )
    return np.array([[_read_number(word, f"mpc.{name}", file) for word in row] for row in rows])


def _read_costs(table: Array, generators: int, file: str) -> Array:
    """(generators, 3): c2, c1, c0 of polynomials of degree 2 at most.

    Rows beyond the generators are costs of reactive power, which a DC model does not have.
    """
    if len(table) not in (generators, 2 * generators) or table.shape[1] < 4:
        raise InvalidInput(
            f"mpc.gencost of {file} has {len(table)} rows of {table.shape[1]} numbers; one row for "
            f"each of {generators} generators is needed (or two, with reactive power)",
            code="bad-file",
        )
    result = np.zeros((generators, 3))
    for number, row in enumerate(table[:generators]):
        if row[0] != POLYNOMIAL:
            raise InvalidInput(
                f"generator {number + 1} of {file} has a cost of model {row[0]:g}; polynomials "
                "(model 2) of degree 2 at most are supported, piecewise linear costs are not",
                code="unsupported",
            )
        terms = int(row[3])
        if terms != row[3] or terms < 0 or len(row) < 4 + terms:
            raise InvalidInput(
                f"generator {number + 1} of {file} states {row[3]:g} coefficients of its cost and "
                f"gives {len(row) - 4}",
                code="bad-file",
            )
        given = row[4 : 4 + terms]
        if given[:-3].any() or not np.isfinite(given).all():
            raise InvalidInput(
                f"generator {number + 1} of {file} has a cost of degree {terms - 1}; polynomials "
                "of degree 2 at most are supported",
                code="unsupported",
            )
        last = given[-3:]
        result[number, 3 - len(last) :] = last
        if result[number, 0] < 0:
            raise InvalidInput(
                f"generator {number + 1} of {file} has a concave cost; least cost is then no "
                "convex program",
                code="unsupported",
            )
    return result
