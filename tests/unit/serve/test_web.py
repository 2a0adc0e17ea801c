"""The card, the description, health, metrics and the token, for runs of all applications."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import cg4ai
from cg4ai.apps.predictions import RunPredictor
from cg4ai.cli.main import main
from cg4ai.errors import InvalidInput, RunFolderError
from cg4ai.report.card import ModelCard, card_of, list_recorded_guarantees
from cg4ai.runs.files import read_json, write_json
from cg4ai.runs.folder import Run
from cg4ai.serve.gate import TOKEN, read_token
from cg4ai.serve.limits import ServeLimits
from cg4ai.serve.pages import card_page, format_curl
from cg4ai.serve.service import Service, hide_paths, load_run
from cg4ai.serve.web import make_app
from in_process import InProcess
from raising import raises

NAMES = ("train", "route", "digits")
SECRET = "s3cret-of-a-test"


def client(folder: Path, *, token: str | None = None, **headers: str) -> InProcess:
    return InProcess(make_app(Service(folder), token=token), **headers)


def card(folder: Path) -> ModelCard:
    return load_run(folder).card


# ---- the card ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "rules", "certified"),
    [
        ("train", ["size", "age"], ["price"], {"range, at least", "range, at most"}, False),
        ("route", ["a->d", "b->d"], ["a->d via a->d"], {"capacity"}, True),
        ("digits", ["pixel 0", "pixel 783"], ["digit", "logit 9"], {"required images"}, False),
    ],
)
def test_the_card_names_inputs_outputs_rules_and_proofs(
    finished_runs: Path,
    name: str,
    inputs: list[str],
    outputs: list[str],
    rules: set[str],
    certified: bool,
) -> None:
    folder = finished_runs / name
    with client(folder) as server:
        found = server.get("/", headers={"accept": "application/json"})
        page = server.get("/", headers={"accept": "text/html,application/json;q=0.9"})
        example = server.get("/example").json()["rows"][0]
    data = found.json()
    named = {one["name"]: one for one in data["inputs"]}
    assert set(inputs) <= set(named)
    assert set(outputs) <= set(data["outputs"])
    assert {one["rule"] for one in data["rules"]} == rules
    assert all(one["holds"] and one["words"] and one["meaning"] for one in data["rules"])
    assert list(example) == list(named)
    assert all(named[key]["least"] <= value <= named[key]["most"] for key, value in example.items())
    summary = json.loads((folder / "summary.json").read_text())
    stated = [one["sha256"] for one in data["certificates"]]
    assert stated == ([summary["certificate"]["sha256"]] if certified else [])
    assert (data["version"], data["application"]) == (cg4ai.__version__, name)
    # the page says the same, fetches nothing, and shows no place of this machine
    text = html.unescape(re.sub(r"<[^>]+>", "", page.text))
    for word in [*inputs, *outputs, *rules, data["model"], *stated, data["rules"][0]["words"]]:
        assert word in text
    assert not re.search(r"(src|href)=\"(https?:)?//|url\(|@import", page.text)
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for answer in (found.text, page.text):
        assert str(finished_runs) not in answer


def test_the_command_of_the_card_can_be_run(finished_runs: Path) -> None:
    shown = format_curl(card(finished_runs / "train"), address="http://127.0.0.1:1", token=True)
    said = subprocess.run(
        ["bash", "-c", f"curl() {{ printf '%s\\n' \"$@\"; }}; {shown}"],
        capture_output=True,
        text=True,
        check=True,
        env={TOKEN: SECRET},
    ).stdout.splitlines()
    assert f"Authorization: Bearer {SECRET}" in said
    assert "http://127.0.0.1:1/predict" in said
    assert list(json.loads(said[-1])["rows"][0]) == ["size", "age"]
    many = format_curl(card(finished_runs / "digits"), address="http://127.0.0.1:1", token=False)
    assert shlex.split(many) == [
        *("curl", "--silent", "http://127.0.0.1:1/example", "|"),
        *("curl", "--silent", "http://127.0.0.1:1/predict", "--data", "@-"),
    ]


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("splits.example:8080", "http://splits.example:8080/predict"),
        ("[::1]:80", "http://[::1]:80/predict"),
        ('"><script>', "http://127.0.0.1:8000/predict"),
        ("$(reboot)", "http://127.0.0.1:8000/predict"),
    ],
)
def test_the_address_on_the_card_is_the_one_that_was_called(
    finished_runs: Path, host: str, shown: str
) -> None:
    app = make_app(Service(finished_runs / "train"), address="http://127.0.0.1:8000")
    with InProcess(app) as server:
        page = server.get("/", headers={"host": host}).text
    assert shown in html.unescape(page)
    assert host not in page or host in shown


def test_rules_that_are_not_kept_are_said_first(finished_runs: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished_runs / "train", tmp_path / "run"))
    summary = read_json(folder / "summary.json")
    summary["audits"][0] |= {"holds": False, "statement": "broken <b>here</b>"}
    write_json(folder / "summary.json", summary)
    made = card(folder)
    assert made.sentence == "NOT KEPT: range, at least. Kept: range, at most (shielded)."
    page = card_page(made, ServeLimits(), address="", token=False)
    assert 'class="badge bad">violated<' in page
    assert "broken &lt;b&gt;here&lt;/b&gt;" in page


def test_without_a_summary_the_card_says_what_is_recorded(
    finished_runs: Path, tmp_path: Path
) -> None:
    for name, expected in (("train", "shielded"), ("route", "shielded"), ("digits", None)):
        folder = tmp_path / name
        folder.mkdir()
        for file in ("ensemble.json", "members.safetensors"):
            shutil.copy(finished_runs / name / file, folder)
        made = card(folder)
        assert {one.strength for one in made.guarantees} == ({expected} if expected else set())
        assert made.application in ("tabular", "routing", "digits")
    # how many of the listed images are answered right is not known without the others
    assert made.sentence == "No rule is known to hold, so nothing is guaranteed."


def test_claims_about_another_mixture_count_for_nothing(finished_runs: Path) -> None:
    ensemble = RunPredictor.from_folder(finished_runs / "route").ensemble
    proven = {**ensemble.about["guarantees"][0], "strength": "certified"}
    ensemble.about["guarantees"] = [proven]
    assert [one.strength for one in list_recorded_guarantees(ensemble)] == ["certified"]
    ensemble.about["guarantees"] = [{**proven, "mixture": "0" * 64}]
    assert [one.strength for one in list_recorded_guarantees(ensemble)] == ["shielded"]


def test_a_damaged_certificate_is_no_certificate(finished_runs: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished_runs / "route", tmp_path / "run"))
    card = card_of(folder, RunPredictor.from_folder(folder))
    assert [one.file for one in card.certificates] == ["certificate.cg4ai"]
    (folder / "certificate.cg4ai").write_bytes(b"nothing")
    with raises(RunFolderError, "bad-file", "digest"):
        card_of(folder, RunPredictor.from_folder(folder))


def test_a_patched_run_has_a_card(finished_runs: Path, tmp_path: Path) -> None:
    rule = [{"rule": "linear", "name": "added", "rows": [0], "at_most": 2.4}]
    (tmp_path / "added.json").write_text(json.dumps(rule))
    command = ["patch", str(finished_runs / "train"), "--add", str(tmp_path / "added.json")]
    assert main([*command, "--out", str(tmp_path / "patched")]) == 0
    made = card(tmp_path / "patched")
    assert [one.rule for one in made.guarantees] == ["range, at least", "range, at most", "added"]
    assert made.guarantees[2].strength == "audited"
    assert main(["show", str(tmp_path / "patched")]) == 0


# ---- rules whose files are gone ----------------------------------------------------------------


def test_explanations_give_what_is_recorded_where_the_rules_are_gone(
    finished_runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that was copied to another machine still answers, and says what it cannot."""
    shutil.copytree(finished_runs / "train", tmp_path / "run")
    header = read_json(tmp_path / "run" / "run.json")
    header["settings"]["rules"] = "/nowhere/at/all/rules.json"
    write_json(tmp_path / "run" / "run.json", header)
    with Run.open(tmp_path / "run") as run:
        run.finish(run.summary(compared=False) or {})  # as of these settings
    with client(tmp_path / "run") as server:
        assert "/nowhere/at/all/rules.json" in capsys.readouterr().err
        found = server.post("/explain", json={"rows": [{"size": 0.5, "age": 0.5}]})
        data = server.get("/", headers={"accept": "application/json"})
        page = server.get("/")
    (row,) = found.json()["rows"]
    assert row["range, at most: slack"] is None
    assert row["range, at most: strength"] == "shielded"
    assert "no slack" in data.json()["notes"][0]
    assert "no slack" in page.text
    assert "nowhere" not in found.text + data.text + page.text


# ---- description, health, metrics --------------------------------------------------------------


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [one for inner in value.values() for one in references(inner)]
    return [one for inner in value for one in references(inner)] if isinstance(value, list) else []


@pytest.mark.parametrize("name", NAMES)
def test_the_description_is_whole_and_names_the_columns(finished_runs: Path, name: str) -> None:
    with client(finished_runs / name, token=SECRET, authorization=f"Bearer {SECRET}") as server:
        document = server.get("/openapi.json").json()
        page = server.get("/docs").text
        example = server.get("/example").json()["rows"][0]
    assert document["openapi"].startswith("3.")
    assert set(document["paths"]) == {
        *("/", "/predict", "/explain", "/example", "/health", "/reload", "/metrics"),
        *("/openapi.json", "/docs"),
    }
    schemas = document["components"]["schemas"]
    assert references(document)
    for one in references(document):
        assert one.removeprefix("#/components/schemas/") in schemas
    assert list(schemas["Row"]["properties"]) == list(example)
    assert document["security"] == [{"token": []}]
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    for path in document["paths"]:
        assert f" {path}</code>" in page
    assert "422" in page
    assert not re.search(r"https?:|src=", page)


def test_health_names_the_run_that_is_loaded(finished_runs: Path) -> None:
    with client(finished_runs / "route") as server:
        found = server.get("/health").json()
        answer = server.post("/predict", json={"rows": [{"a->d": 1, "b->d": 1}]}).json()
    assert found["live"] is True
    assert found["ready"] is True
    assert found["model"] == answer["model"]
    assert found["reload_failed"] is None


def test_drift_is_watched_over_the_last_rows(finished_runs: Path) -> None:
    """A window of three rows; the worst row leaves it again."""
    service = Service(finished_runs / "route", ServeLimits(drift_window=3))

    def read(name: str) -> dict[str, float]:
        lines = server.get("/metrics").text.splitlines()
        found = [line.rsplit(" ", 1) for line in lines if line.startswith(name)]
        return {labels.removeprefix(name): float(value) for labels, value in found}

    with InProcess(make_app(service)) as server:
        assert read("cg4ai_drift_rows") == {"": 0}
        example = server.get("/example").json()["rows"][0]
        largest = service.current.predictor.described.signature.upper
        far, near = {**example, "a->d": 3 * largest[0]}, {**example, "b->d": 1.25 * largest[1]}
        server.post("/predict", json={"rows": [example, example, far]})
        server.post("/predict", json={"rows": [near]})
        assert read("cg4ai_drift_rows") == {"": 3}
        assert read("cg4ai_drift_outside_share") == {"": pytest.approx(2 / 3)}
        assert read("cg4ai_drift_largest_factor") == {'{limit="a->d"}': pytest.approx(3)}
        server.post("/predict", json={"rows": [example, near]})
        assert read("cg4ai_drift_largest_factor") == {'{limit="b->d"}': pytest.approx(1.25)}
        origins = read("cg4ai_answers_total")
        assert sum(origins.values()) == 6
        server.post("/predict", json={"rows": [example] * 5})
        assert read("cg4ai_drift_outside_share") == {"": 0}
        assert read("cg4ai_drift_largest_factor") == {}


def test_metrics_count_requests_rows_and_what_lies_outside(finished_runs: Path) -> None:
    with client(finished_runs / "route") as server:
        box = [one.most for one in card(finished_runs / "route").interface.inputs]
        rows = [[1.0, 1.0], [0.5 * box[0], box[1]], [2 * box[0], 1.0]]
        asked = {"rows": [dict(zip(("a->d", "b->d"), row, strict=True)) for row in rows]}
        server.post("/predict", json=asked)
        server.post("/explain", json=asked)
        server.post("/predict", json={})
        server.get("/absent")
        server.get("/predict")
        found = server.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain")
    lines = dict(line.rsplit(" ", 1) for line in found.text.splitlines() if line[0] != "#")
    counted = {name: float(value) for name, value in lines.items()}
    assert counted['cg4ai_requests_total{code="200",endpoint="/predict"}'] == 1
    assert counted['cg4ai_requests_total{code="422",endpoint="/predict"}'] == 1
    assert counted['cg4ai_requests_total{code="405",endpoint="/predict"}'] == 1
    assert counted['cg4ai_requests_total{code="404",endpoint="other"}'] == 1
    assert counted['cg4ai_request_seconds_count{endpoint="/explain"}'] == 1
    assert counted["cg4ai_rows_total"] == 6
    assert counted["cg4ai_rows_outside_total"] == 2
    assert counted["cg4ai_requests_waiting"] == 0
    assert any(
        name.startswith("cg4ai_model_info{") and 'application="route"' in name for name in counted
    )


def test_rows_that_the_shield_moved_are_counted(finished_runs: Path) -> None:
    """Against what explanations say of the same rows."""
    made = [{"size": i / 40, "age": j / 40} for i in range(1, 40, 3) for j in range(1, 40, 3)]
    with client(finished_runs / "train") as server:
        explained = server.post("/explain", json={"rows": made}).json()["rows"]
        moved = sum(row["moved by the shield"] > 0 for row in explained)
        assert 0 < moved < len(made)
        server.post("/predict", json={"rows": made})
        counted = server.get("/metrics").text
    assert f"cg4ai_rows_shielded_total {2.0 * moved}" in counted


@pytest.mark.filterwarnings("error")
def test_what_can_be_looked_at_answers_head(finished_runs: Path) -> None:
    """Whoever watches over a server often asks so; it got code 405."""
    paths = ("/", "/example", "/health", "/metrics", "/openapi.json", "/docs")
    with client(finished_runs / "train", token=SECRET) as server:
        for path in paths:
            code = 200 if path == "/health" else 401
            assert server.run(server.client.head(path)).status_code == code
    with client(finished_runs / "train") as server:
        for path in paths:
            got, head = server.get(path), server.run(server.client.head(path))
            assert head.status_code == 200
            assert head.headers["content-type"] == got.headers["content-type"]
        assert server.run(server.client.head("/predict")).status_code == 405


def test_unknown_paths_and_methods_get_words(finished_runs: Path) -> None:
    with client(finished_runs / "train") as server:
        assert server.get("/absent").json() == {
            "error": "GET /absent: Not Found; GET /docs lists what there is"
        }
        found = server.get("/predict")
    assert found.status_code == 405
    assert found.headers["allow"] == "POST"
    assert "Method Not Allowed" in found.json()["error"]


# ---- the token ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"authorization": ""},
        {"authorization": SECRET},
        {"authorization": f"Basic {SECRET}"},
        {"authorization": "Bearer "},
        {"authorization": f"Bearer {SECRET}x"},
        {"authorization": f"Bearer {SECRET[:-1]}"},
        {"authorization": "Bearer \xe4".encode("latin-1")},
    ],
)
def test_without_the_token_only_health_answers(finished_runs: Path, header: Any) -> None:
    with client(finished_runs / "train", token=SECRET) as server:
        for path in ("/", "/docs", "/openapi.json", "/example", "/metrics", "/absent"):
            found = server.get(path, headers=header)
            assert found.status_code == 401
            assert found.headers["www-authenticate"] == "Bearer"
            assert TOKEN in found.json()["error"]
            assert SECRET not in found.text
        for path in ("/predict", "/explain", "/reload"):
            assert server.post(path, headers=header).status_code == 401
        assert server.get("/health", headers=header).status_code == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_with_the_token_all_answers(finished_runs: Path, scheme: str) -> None:
    headers = {"authorization": f"{scheme} {SECRET}"}
    with client(finished_runs / "train", token=SECRET) as server:
        assert server.get("/", headers=headers).status_code == 200
        assert server.get("/metrics", headers=headers).status_code == 200
        twice = [("authorization", f"Bearer {SECRET}")] * 2
        assert server.get("/", headers=twice).status_code == 401


@pytest.mark.parametrize("given", ["", " ", "two words", "tab\t", "umläut", "line\n"])
def test_tokens_that_cannot_be_sent_are_refused(given: str) -> None:
    with raises(InvalidInput, "bad-name", TOKEN):
        read_token(given)


def test_no_token_and_a_good_one() -> None:
    assert read_token(None) is None
    assert read_token(SECRET) == SECRET


def test_messages_name_no_place_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    text = f"{tmp_path}/link/run.json, {tmp_path}/x, or /etc/passwd; 1/2 of a/b"
    assert hide_paths(text, tmp_path / "link") == "RUN/run.json, RUN/x, or ... 1/2 of a/b"
