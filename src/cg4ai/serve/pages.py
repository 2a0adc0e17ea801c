"""The pages of a server: the model card, and the list of its endpoints; nothing is fetched."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cg4ai.apps.protocol import Guarantee, InputColumn
from cg4ai.apps.registry import training_command
from cg4ai.pages import escape, render_page
from cg4ai.records import Strength
from cg4ai.report.card import ModelCard, describe_strength
from cg4ai.report.tables import cell
from cg4ai.serve.gate import TOKEN
from cg4ai.serve.limits import ServeLimits

FEW = 12  # inputs or outputs that are shown without being asked for
WEAK = (Strength.ATTACKED, Strength.AUDITED, Strength.BOUNDED)


def card_page(
    card: ModelCard, limits: ServeLimits, *, address: str, token: bool, note: str = ""
) -> str:
    """The model card as HTML; `address` is where this server was called."""
    interface = card.interface
    title = interface.title[0].upper() + interface.title[1:]
    body = [
        "<main>",
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(card.sentence)}</p>",
        f'<p class="warn">{escape(note[0].upper() + note[1:])}.</p>' if note else "",
        "<h2>Rules</h2>",
        _rules(card.guarantees),
        "<h2>Call it</h2>",
        "<p>Rows go in by column name, a row of answers comes back for each.</p>",
        _copied(format_curl(card, address=address, token=token)),
        "<p>With <code>/explain</code> in place of <code>/predict</code> each answer also says "
        'how strongly every rule is kept there. <a href="docs">All endpoints</a>, '
        f'<a href="openapi.json">OpenAPI</a>. {escape(_limits(limits))}</p>',
        f"<h2>Inputs ({len(interface.inputs)})</h2>",
        f"<p>{escape(_where(interface.region))}</p>",
        _folded(_inputs(interface.inputs), len(interface.inputs), "columns"),
        f"<h2>Outputs ({len(interface.outputs)})</h2>",
        _folded(_list(interface.outputs), len(interface.outputs), "names"),
        "<h2>The run</h2>",
        _table(_facts(card)),
        "</main>",
    ]
    return render_page(f"cg4ai: {interface.title}", "\n".join(body))


def endpoints_page(document: Mapping[str, Any]) -> str:
    """What an OpenAPI document says, for people."""
    title = document["info"]["title"]
    body = ["<main>", f"<h1>{escape(title)}</h1>"]
    body.append(f"<p>{escape(document['info']['description'])}</p>")
    for path, methods in document["paths"].items():
        for method, said in methods.items():
            body.append(f"<h2><code>{escape(method.upper())} {escape(path)}</code></h2>")
            words = [said["summary"], said.get("description", "")]
            body.append(f"<p>{escape(' '.join(words))}</p>")
            if "requestBody" in said:
                schema = said["requestBody"]["content"]["application/json"]["schema"]
                fields = schema["properties"].items()
                body.append("<h3>Takes</h3>")
                body.append(_table([(name, one["description"]) for name, one in fields]))
            answers = said["responses"].items()
            body.append("<h3>Answers</h3>")
            body.append(_table([(code, one["description"]) for code, one in answers]))
    return render_page(title, "\n".join([*body, "</main>"]))


def format_curl(card: ModelCard, *, address: str, token: bool) -> str:
    """A command that predicts a row inside the region."""
    words = ["curl", "--silent"]
    if token:
        words += ["--header", f"Authorization: Bearer ${TOKEN}"]
    # double quotes, so that the shell puts the token in
    said = " ".join(f'"{word}"' if TOKEN in word else shlex.quote(word) for word in words)
    predict = f"{said} {shlex.quote(f'{address}/predict')}"
    if len(card.interface.inputs) > FEW:
        return f"{said} {shlex.quote(f'{address}/example')} | {predict} --data @-"
    return f"{predict} --data {shlex.quote(json.dumps({'rows': [card.example]}))}"


def _where(region: str) -> str:
    if not region:
        return "No rule is restricted to a region of inputs; what each is about stands above."
    return (
        f"Rules over regions are meant in {region}. Rows outside are answered and marked; these "
        "rules are not guaranteed there."
    )


def _copied(command: str) -> str:
    return f'<pre style="user-select: all; white-space: pre-wrap">{escape(command)}</pre>'


def _rules(guarantees: Sequence[Guarantee]) -> str:
    if not guarantees:
        return "<p>There are none that are known to hold.</p>"
    lines = [
        f"<tr><td>{escape(one.rule)}</td><td>{_badge(one)}</td>"
        f'<td>{escape(_meaning(one))} <span class="quiet">{escape(one.words)}</span></td></tr>'
        for one in guarantees
    ]
    head = "<tr><th>rule</th><th>strength</th><th>what is known</th></tr>"
    return f'<div class="wide"><table>{head}{"".join(lines)}</table></div>'


def _meaning(one: Guarantee) -> str:
    words = describe_strength(one)
    return f"{words[:1].upper()}{words[1:]}."


def _badge(one: Guarantee) -> str:
    kind = "bad" if not one.holds else "warn" if one.strength in WEAK else "good"
    return f'<span class="badge {kind}">{escape(one.strength)}</span>'


def _inputs(inputs: Sequence[InputColumn]) -> str:
    lines = "".join(
        f"<tr><td>{escape(one.name)}</td><td>{one.kind}</td><td>{escape(_range(one))}</td></tr>"
        for one in inputs
    )
    return f"<table><tr><th>column</th><th>holds</th><th>range</th></tr>{lines}</table>"


def _range(one: InputColumn) -> str:
    words = ", ".join(one.values)
    if one.kind == "number":
        words = f"{cell(one.least)} to {cell(one.most)}"
    if one.kind == "boolean":
        words = "true or false"
    return f"{words}; null where unknown" if one.may_be_empty else words


def _list(names: Iterable[str]) -> str:
    return f"<p>{', '.join(f'<code>{escape(name)}</code>' for name in names)}</p>"


def _folded(content: str, count: int, what: str) -> str:
    if count <= FEW:
        return f'<div class="wide">{content}</div>'
    return f'<details><summary>{count} {what}</summary><div class="wide">{content}</div></details>'


def _facts(card: ModelCard) -> list[tuple[str, str]]:
    proofs = [
        (f"certificate {one.file}", f"SHA-256 {one.sha256}; check it with cg4ai check")
        for one in card.certificates
    ]
    return [
        ("trained by", training_command(card.application)),
        ("created", card.created),
        ("members in the mixture", str(card.members)),
        ("model", f"SHA-256 of ensemble.json {card.model}"),
        *proofs,
        ("served by", f"cg4ai {card.version}"),
    ]


def _table(facts: Iterable[tuple[str, str]]) -> str:
    lines = (f"<tr><th>{escape(a)}</th><td>{escape(b)}</td></tr>" for a, b in facts if b)
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _limits(limits: ServeLimits) -> str:
    return (
        f"At most {limits.rows} rows, {limits.body_mib:g} MiB and {limits.seconds:g} s for each "
        "request."
    )
