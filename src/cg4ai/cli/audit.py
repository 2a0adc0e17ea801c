"""`cg4ai audit`: rules recomputed from the predictions of a trained mixture, on any data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cg4ai.cli.completion import RunFolder

MET, NOT_MET = 0, 3


def audit(
    folder: RunFolder,
    *,
    rules: Annotated[
        Path | None,
        typer.Option(metavar="RULES.json", help="Rules to check; default: those of the run."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DATA.csv", help="Data that the rules' rows refer to.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the audits as JSON.")] = False,
) -> None:
    """Recompute rules from the predictions of the model in RUN, on any data.

    For a router the rules are the capacities of all links, over the whole set of demands or at
    the demands of DATA.csv. Exit code 0: all hold; 3: some do not.
    """
    from cg4ai.apps.csv_tables import read_csv
    from cg4ai.apps.folders import load_trained
    from cg4ai.apps.patches import list_added_rules
    from cg4ai.ensemble.verdict import format_headline
    from cg4ai.report import wording
    from cg4ai.report.terminal import finding_lines
    from cg4ai.runs import files

    ensemble, described = load_trained(folder)
    table = None if data is None else read_csv(data)
    checked = described.rules(rules, table)
    if rules is None:
        checked += list_added_rules(ensemble, described, table)
    audits = [ensemble.audit(rule.requirement) for rule in checked]
    entries = [wording.audit_entry(one, rule) for one, rule in zip(audits, checked, strict=True)]
    holds = all(one.holds for one in audits)
    if json:
        sys.stdout.write(files.json_line({"feasible": holds, "audits": entries}).decode())
    else:
        findings = [wording.finding_of(entry) for entry in entries]
        outputs = checked[0].outputs if checked else ()
        lines = [format_headline([one.verdict for one in findings]), *finding_lines(findings)]
        print("\n".join([*lines, *wording.class_names(findings, outputs)]))
    raise typer.Exit(MET if holds else NOT_MET)
