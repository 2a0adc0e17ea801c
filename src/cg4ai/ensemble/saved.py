"""An ensemble on disk: one description of a mixture, its anchor and its shield, and back.

    ensemble.json         about, layout, blocks, weights, the kind of each stack of members, and
                          the shield: its guards and its anchor, described in the same way
    members.safetensors   all arrays: `0.weight_0` of the first stack, `anchor.0.values` of the
                          anchor's, `guard.0.limit` of the first guard

Both are sealed, and ensemble.json states the seal of the other, so that files of two saves do not
mix. Nothing that is loaded is executed; a user's own modules come from factories given again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cg4ai.ensemble.ensemble import Ensemble
from cg4ai.ensemble.shield import ShieldedEnsemble
from cg4ai.errors import InvalidInput, MissingFactory, RunFolderError
from cg4ai.layout import Layout
from cg4ai.members import restore
from cg4ai.members.mixture import Part
from cg4ai.records import Array, IntArray, select_prefixed
from cg4ai.rules.guards import dump_guards, load_guards
from cg4ai.rules.quadratic import square_of_factor
from cg4ai.runs import files

FORMAT = "cg4ai-ensemble"
VERSION = 3  # 3: sealed, with its shield, in two files
HEADER = ("format", "version", "arrays")
RECORD, ARRAYS = "ensemble.json", "members.safetensors"
EARLIER_FACTOR = re.compile(r"(?:.*\.)?guard\.\d+\.factor")

Factories = Mapping[str, Any]  # functions that make modules, requirements that are functions


@dataclass(frozen=True, slots=True)
class Description:
    """Plain data: what JSON can say, and named arrays."""

    record: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


def save(ensemble: Ensemble, folder: str | Path) -> Path:
    """Write both files; `load` reads them."""
    target = Path(folder)
    described = describe(ensemble)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunFolderError(f"cannot create {target}: {error.strerror}") from error
    digest = files.write_arrays(target / ARRAYS, described.arrays)
    header = {"format": FORMAT, "version": VERSION, "arrays": digest}
    files.write_json(target / RECORD, header | described.record)
    return target


def save_about(ensemble: Ensemble, folder: str | Path) -> None:
    """Replace what a saved ensemble says about itself; members, weights and shield stay."""
    record = read_record(folder)
    files.write_json(Path(folder) / RECORD, record | {"about": ensemble.about})


def load(folder: str | Path, factories: Factories | None = None) -> Ensemble:
    """Read an ensemble that `save` or a run wrote. Nothing from the folder is executed.

    What is code in Python is given again in `factories`: `{name: factory}` for a torch module class
    of your own, `{kind: restore}` for a kind of member of your own, and `{name: requirement}` for
    rules that are functions.
    """
    record = read_record(folder)
    arrays = _with_squares(files.read_arrays(Path(folder) / ARRAYS, str(record.get("arrays"))))
    try:
        ensemble = restore_ensemble(Description(record, arrays), factories or {})
        _refuse_other(Description(record, arrays), describe(ensemble))
        return ensemble
    except MissingFactory:  # nothing is damaged
        raise
    except InvalidInput as error:
        raise files.make_damage_error(Path(folder) / RECORD, str(error)) from error


def _with_squares(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Arrays as they are stored today: versions before 0.8 stored factors of quadratic rules."""
    found = dict(arrays)
    for name in [name for name in found if EARLIER_FACTOR.fullmatch(name)]:
        found[name.removesuffix("factor") + "square"] = square_of_factor(found.pop(name))
    return found


def _refuse_other(read: Description, written: Description) -> None:
    """InvalidInput unless what was read is what would be written, in every type and dtype.

    Nothing is turned into something else while it is read, so that all who read a folder by
    docs/runs.md, as the checker does, read the same.
    """
    stated = {name: value for name, value in read.record.items() if name not in HEADER}
    own: dict[str, Any] = files.to_plain(written.record)
    found = files.find_difference(stated, own, RECORD)
    if found is None:
        found = files.arrays_difference(read.arrays, written.arrays)
        found = found and f"{ARRAYS} {found}"
    if found:
        raise InvalidInput(f"{found}, as docs/runs.md has it")


def read_record(folder: str | Path) -> dict[str, Any]:
    """What ensemble.json says, of this format and version."""
    path = Path(folder) / RECORD
    if not path.exists():
        raise RunFolderError(f"{folder} holds no ensemble: {RECORD} is missing")
    record = files.read_json(path)
    files.check_format(path, record, expected=FORMAT, version=VERSION)
    return record


def describe(ensemble: Ensemble, prefix: str = "") -> Description:
    """All that an ensemble is, for `restore_ensemble`; names of arrays begin with `prefix`."""
    states = [part.members.state() for part in ensemble.parts]
    record: dict[str, Any] = {
        "about": ensemble.about,
        "layout": [block.tolist() for block in ensemble.layout.blocks],
        "blocks": [part.blocks.tolist() for part in ensemble.parts],
        "weights": [part.weights.tolist() for part in ensemble.parts],
        "members": [files.member_record(state) for state in states],
    }
    arrays = files.member_arrays(states, prefix)
    if isinstance(ensemble, ShieldedEnsemble):
        anchor = describe(ensemble.anchor, f"{prefix}anchor.")
        guards, kept = dump_guards(ensemble.guards)
        record["shield"] = {"anchor": anchor.record, "guards": guards}
        arrays |= anchor.arrays | {f"{prefix}{name}": array for name, array in kept.items()}
    return Description(record, arrays)


def restore_ensemble(described: Description, factories: Factories, prefix: str = "") -> Ensemble:
    """The ensemble that `describe` was given; InvalidInput where the description is none."""
    record = described.record
    ensemble = Ensemble(
        _parts(described, factories, prefix),
        Layout(tuple(_integers(own, "layout") for own in _list(record.get("layout"), "layout"))),
        about=_object(record.get("about"), "about"),
    )
    if record.get("shield") is None:
        return ensemble
    shield = _object(record["shield"], "shield")
    described = Description(_object(shield.get("anchor"), "anchor"), described.arrays)
    anchor = restore_ensemble(described, factories, f"{prefix}anchor.")
    guards = load_guards(shield.get("guards"), select_prefixed(described.arrays, prefix), factories)
    sizes = {
        (ensemble.input_size, ensemble.output_size),
        (anchor.input_size, anchor.output_size),
        *(
            (guard.region.size, guard.rules.output_size)
            for guard in guards
            if guard.rules.output_size is not None
        ),
    }
    if len(sizes) > 1:
        raise InvalidInput(
            f"mixture, anchor and guards differ in inputs or outputs: {sizes}", code="shape"
        )
    return ShieldedEnsemble(ensemble, anchor, guards)


def _parts(described: Description, factories: Factories, prefix: str) -> tuple[Part, ...]:
    record = described.record
    states = files.member_states(record.get("members"), described.arrays, prefix)
    blocks, weights = (_list(record.get(name), name) for name in ("blocks", "weights"))
    if not len(states) == len(blocks) == len(weights):
        raise InvalidInput(
            f"there are {len(states)} stacks of members, {len(blocks)} lists of blocks and "
            f"{len(weights)} of weights; the three must be as many",
            code="shape",
        )
    return tuple(
        Part(restore(state, factories), _integers(own, "blocks"), _numbers(weight, "weights"))
        for state, own, weight in zip(states, blocks, weights, strict=True)
    )


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be a JSON object, got {value!r:.80}", code="type")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise InvalidInput(f"{what} must be a list, got {value!r:.80}", code="type")
    return value


def _integers(value: Any, what: str) -> IntArray:
    wrong = [one for one in _list(value, what) if type(one) is not int or abs(one) >= 2**62]
    if wrong:
        raise InvalidInput(f"{what} must hold integers, got {wrong[0]!r:.80}", code="type")
    return np.array(value, np.int64)


def _numbers(value: Any, what: str) -> Array:
    wrong = [one for one in _list(value, what) if type(one) not in (int, float) or one != one]
    if wrong or any(abs(one) > 1e300 for one in value):
        raise InvalidInput(f"{what} must hold finite numbers, got {value!r:.80}", code="not-finite")
    return np.array(value, np.float64)
