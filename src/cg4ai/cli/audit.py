"""`cg4ai audit`: rules recomputed from the predictions of a trained mixture, on any data."""

from __future__ import annotations

import sys
from pathlib import Path

from cg4ai.apps.tabular.csvdata import read_csv
from cg4ai.apps.tabular.rulefile import read_rules
from cg4ai.cli import wording
from cg4ai.cli.trained import load_trained
from cg4ai.runs import files

MET, NOT_MET = 0, 3


def run(folder: Path, rules: Path, *, data: Path | None, as_json: bool) -> int:
    """Print what holds and how that was established; returns the exit code."""
    trained = load_trained(folder)
    subject = trained.subject(None if data is None else read_csv(data))
    checked = read_rules(rules, subject)
    audits = [trained.ensemble.audit(rule.requirement) for rule in checked]
    entries = [
        wording.audit_entry(audit, rule) for audit, rule in zip(audits, checked, strict=True)
    ]
    holds = all(audit.holds for audit in audits)
    if as_json:
        sys.stdout.write(files.json_line({"feasible": holds, "audits": entries}).decode())
    else:
        print(wording.audit_report(entries, trained.outputs))
    return MET if holds else NOT_MET
