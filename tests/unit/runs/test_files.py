"""Files round-trip exactly, and every kind of damage is noticed and named."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.records import MemberState, StopReason
from cg4ai.runs import files
from raising import raises

pytestmark = pytest.mark.usefixtures("quick_disk")

quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
names = st.text(min_size=1, max_size=8)
dtypes = st.sampled_from([np.bool_, np.int64, np.uint8, np.float64, np.float32])
arrays = dtypes.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**64) + 1, 2**64 - 1)
    | st.floats()
    | st.text()
    | st.sampled_from([*files.NON_FINITE, "'NaN", "''Infinity", "'"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def same(left: Any, right: Any) -> bool:
    """Equality in which NaN equals itself and 1, 1.0 and True are three things."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right or (left != left and right != right)


def assert_same_arrays(left: Any, right: Any) -> None:
    assert left.keys() == right.keys()
    for name in left:
        assert left[name].dtype == right[name].dtype
        assert left[name].shape == right[name].shape
        assert left[name].tobytes() == right[name].tobytes()


@quick
@given(content=st.dictionaries(st.text().filter(lambda key: key != "sha256"), values, max_size=4))
def test_json_round_trips_and_is_strict(tmp_path: Path, content: dict[str, Any]) -> None:
    path = tmp_path / "value.json"
    files.write_json(path, content)
    assert same(files.read_json(path), content)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    plain = json.loads(path.read_text(), parse_constant=refuse)
    assert plain.keys() == {"sha256", *content}  # as jq and others find it


def test_a_seal_is_the_files_own(tmp_path: Path) -> None:
    for content in ({"sha256": "of something"}, [1, 2], "text"):
        with raises(InvalidInput, "type", "sha256"):
            files.write_json(tmp_path / "v.json", content)  # type: ignore[arg-type]
    (tmp_path / "v.json").write_text('{"objective": 1.0}')
    with raises(RunFolderError, "bad-file", "version"):
        files.read_json(tmp_path / "v.json")


@quick
@given(content=st.dictionaries(names, arrays, max_size=4))
def test_arrays_round_trip(tmp_path: Path, content: dict[str, Any]) -> None:
    path = tmp_path / "a.safetensors"
    files.write_arrays(path, content)
    assert_same_arrays(files.read_arrays(path), content)


def test_memory_order_and_byte_order_do_not_matter(tmp_path: Path) -> None:
    matrix = np.arange(6.0).reshape(2, 3)
    path = tmp_path / "a.safetensors"
    given_arrays = {"t": matrix.T, "s": matrix[:, ::2], "b": matrix.astype(">f8")}
    files.write_arrays(path, given_arrays)
    back = files.read_arrays(path)
    for name, array in given_arrays.items():
        np.testing.assert_array_equal(back[name], array)


def test_arrays_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    """The order of one and the same file changed from one reading to the next."""
    path = tmp_path / "a.safetensors"
    files.write_arrays(
        path, {name: np.zeros(2, np.float32 if name < "k" else int) for name in "zkaqbf"}
    )
    assert "".join(files.read_arrays(path)) == "abfkqz"


@dataclass(frozen=True)
class Inner:
    count: int
    limits: tuple[float, ...]


def test_json_takes_numpy_enums_dataclasses_and_paths(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    files.write_json(
        path,
        {
            "float": np.float32(0.5),
            "long": np.longdouble(0.25),
            "int": np.int64(3),
            "bool": np.True_,
            "array": np.array([[1.0, np.inf]]),
            "stop": StopReason.OPTIMAL,
            "inner": Inner(2, (1.0, -math.inf)),
            "path": Path("a") / "b",
            7: "integer key",
            StopReason.INFEASIBLE: np.array(4),
        },
    )
    assert files.read_json(path) == {
        "float": 0.5,
        "long": 0.25,
        "int": 3,
        "bool": True,
        "array": [[1.0, math.inf]],
        "stop": "optimal",
        "inner": {"count": 2, "limits": [1.0, -math.inf]},
        "path": str(Path("a") / "b"),
        "7": "integer key",
        "infeasible": 4,
    }
    assert '"Infinity"' in path.read_text()


@pytest.mark.parametrize("bad", [1j, np.complex128(1j), {1, 2}, object(), np.datetime64("2020")])
def test_json_refuses_other_types_and_says_where(tmp_path: Path, bad: object) -> None:
    with raises(InvalidInput, "type"):
        files.write_json(tmp_path / "v.json", {"master": {"limits": [0, bad]}})
    assert not list(tmp_path.iterdir())


def test_json_refuses_keys_that_would_not_read_back(tmp_path: Path) -> None:
    with raises(InvalidInput, "type"):
        files.write_json(tmp_path / "v.json", {(1, 2): 3})


@pytest.mark.parametrize("bad", [np.array(["a"]), np.array([None]), np.array([1j])])
def test_arrays_refuse_other_dtypes(tmp_path: Path, bad: Any) -> None:
    with raises(InvalidInput, "unsupported", "weights"):
        files.write_arrays(tmp_path / "a.safetensors", {"weights": bad})
    with raises(InvalidInput, "unsupported", "__metadata__"):
        files.write_arrays(tmp_path / "a.safetensors", {"__metadata__": np.ones(1)})


def damaged_versions(data: bytes) -> list[bytes]:
    cuts = [data[:length] for length in range(0, len(data), 3)]
    flips = [
        data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]
        for at in range(len(data))
        for mask in (0x01, 0x10)
    ]
    return [*cuts, *flips, data + b"x"]


def test_every_flipped_or_missing_byte_of_an_array_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    content = {"weights": np.array([0.25, 0.75]), "used": np.array([True]), "e": np.ones((0, 2))}
    files.write_arrays(path, content)
    whole = path.read_bytes()
    for data in damaged_versions(whole):
        path.write_bytes(data)
        with raises(RunFolderError, "bad-file", "a.safetensors"):
            files.read_arrays(path)


def test_json_never_gives_back_something_else(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    content = {"iteration": 12, "state": [1.5, "text", None, math.nan]}
    files.write_json(path, content)
    for data in damaged_versions(path.read_bytes()):
        path.write_bytes(data)
        try:
            assert same(files.read_json(path), content)  # only white space was hit
        except RunFolderError as error:
            assert "c.json is damaged" in str(error)  # noqa: PT017


def test_lines_never_give_back_something_else(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    records = [{"iteration": 0, "slack": math.inf}, {"iteration": 1, "seconds": {"a": 0.5}}]
    files.append_lines(path, records[:1])
    files.append_lines(path, records[1:])
    whole = path.read_bytes()
    assert [record for _, record in files.read_lines(path)] == records
    assert b"".join(line for line, _ in files.read_lines(path)) == whole
    for length in range(len(whole)):  # a kill while writing
        path.write_bytes(whole[:length])
        complete = whole[:length].count(b"\n")
        assert [record for _, record in files.read_lines(path)] == records[:complete]
    for at in range(len(whole)):
        for mask in (0x01, 0x08, 0x20):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])
            with raises(RunFolderError, "bad-file", "h.jsonl"):
                files.read_lines(path)


def test_missing_and_foreign_files_are_named(tmp_path: Path) -> None:
    with raises(RunFolderError, "bad-file", "none.json"):
        files.read_json(tmp_path / "none.json")
    with raises(RunFolderError, "bad-file", "none.safetensors"):
        files.read_arrays(tmp_path / "none.safetensors")
    for text, what in (
        ('{"loss": NaN}', "NaN is not JSON"),
        ('{"loss": 1e999}', "too large"),
        ('{"loss": ' + "9" * 5000 + "}", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 90 + "]" * 90, "did not write it"),
        ("[" * 900 + "]" * 900, "levels of lists"),
        ('{"sha256": 1, "deep": ' + "[" * 950 + "]" * 950 + "}", "damaged"),
        ('{"sha256": 1, "loss": 1, "loss": 1}', "a key twice"),
        (f'{{"count": {2**64}}}', "64 bits"),
    ):
        (tmp_path / "bad.json").write_text(text)
        with raises(RunFolderError, "bad-file", what, what):
            files.read_json(tmp_path / "bad.json")
    with raises(RunFolderError, "bad-file", "away"):
        files.write_json(tmp_path / "away" / "v.json", {})


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside.json", tmp_path / "run"
    folder.mkdir()
    files.write_json(outside, {"secret": 1})
    (folder / "v.json").symlink_to(outside)
    with raises(RunFolderError, "bad-file", "symbolic"):
        files.read_json(folder / "v.json")
    with raises(RunFolderError, "bad-file", "symbolic"):
        files.append_lines(folder / "v.json", [{}])
    files.write_json(folder / "v.json", {"mine": 2})  # replaces the link itself
    assert files.read_json(outside) == {"secret": 1}


def states() -> list[MemberState]:
    return [
        MemberState("network", {"sizes": [2, 3]}, {"w": np.ones((4, 2)), "b": np.zeros(())}),
        MemberState("constant", {"value": math.inf}),
        MemberState("network", {}, {"w": np.arange(3, dtype=np.int64)}),
    ]


def test_members_round_trip() -> None:
    records = [files.member_record(state) for state in states()]
    arrays = files.member_arrays(states(), "anchor.")
    loaded = files.member_states(records, arrays, "anchor.")
    for saved, back in zip(states(), loaded, strict=True):
        assert (back.kind, back.config) == (saved.kind, saved.config)
        assert_same_arrays(back.arrays, saved.arrays)
        assert files.member_digest(back) == files.member_digest(saved)
    several: list[Any] = [None, {}, [None], [{"kind": "network", "config": None}], [{"config": {}}]]
    for wrong in several:
        with raises(InvalidInput, "type", "stack"):
            files.member_states(wrong, arrays)


def test_member_digest_sees_kind_config_and_arrays() -> None:
    state = MemberState("a", {"n": 1}, {"w": np.zeros(2)})
    others = [
        MemberState("b", {"n": 1}, {"w": np.zeros(2)}),
        MemberState("a", {"n": 2}, {"w": np.zeros(2)}),
        MemberState("a", {"n": 1}, {"v": np.zeros(2)}),
        MemberState("a", {"n": 1}, {"w": np.zeros((2, 1))}),
        MemberState("a", {"n": 1}, {"w": np.zeros(4, np.float32)}),
        MemberState("a", {"n": 1}, {"w": np.array([0.0, 1.0])}),
    ]
    digests = {files.member_digest(other) for other in [state, *others]}
    assert len(digests) == 1 + len(others)


def test_arrays_of_two_saves_do_not_mix(tmp_path: Path) -> None:
    digest = files.write_arrays(tmp_path / "a.safetensors", {"w": np.ones(2)})
    files.read_arrays(tmp_path / "a.safetensors", digest)
    files.write_arrays(tmp_path / "a.safetensors", {"w": np.zeros(2)})
    with raises(RunFolderError, "bad-file", "a.safetensors"):
        files.read_arrays(tmp_path / "a.safetensors", digest)


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "v.json"
    files.write_json(path, {"value": "old"})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with raises(RunFolderError, "bad-file", "space"):
            files.write_json(path, {"value": "new"})
    assert files.read_json(path) == {"value": "old"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["v.json"]
