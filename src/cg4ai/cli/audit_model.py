"""`cg4ai audit-model`: its options and help; rules of a model that another library fitted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

PROVEN, UNDECIDED, REFUTED = 0, 1, 3


def audit_model(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="LightGBM .txt, XGBoost .json or .ubj, CatBoost .cbm or .json, ONNX or skops.",
        ),
    ],
    *,
    rules: Annotated[
        Path, typer.Option(metavar="RULES.json", help="Rules to judge, as those of train.")
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA.csv",
            help="Rows from which searches start: names of columns, and the ranges of boxes.",
        ),
    ] = None,
    region: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=LOW:HIGH,...",
            help="Where rules hold that name no place; data: the range of DATA.csv. Default: all "
            "finite numbers.",
        ),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Names of the features, in the model's order."),
    ] = None,
    outputs: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Names of the outputs or classes, in order."),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write certificates of proven rules: FILE, FILE with .2, ..."
        ),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time limit for each rule.")
    ] = 60.0,
    tolerance: Annotated[
        float, typer.Option(help="A rule is refuted if missed by more than this x its size.")
    ] = 1e-6,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Prove or refute rules of a fitted model, whatever library made it.

    Each rule is PROVEN at every input, with a certificate that cg4ai check accepts; REFUTED at
    inputs where the library's own predictions break it; or UNKNOWN, with a proven bound of how far
    it can be missed. Rules are those of train that hold everywhere or over a box or ball, and
    {"rule": "stable", "row": {...}, "radius": 0.1, "tolerance": 0.05}. Missing values are not
    judged. Exit code 0: all rules proven; 3: some refuted; 1: none refuted, some unknown; 2: bad
    input.
    """
    from cg4ai.cli.audit_model_run import Options, run
    from cg4ai.runs import files

    options = Options(
        rules=rules,
        data=data,
        region=region,
        features=None if features is None else [one.strip() for one in features.split(",")],
        outputs=None if outputs is None else [one.strip() for one in outputs.split(",")],
        time_limit_s=time_limit,
        tolerance=tolerance,
    )
    found = run(model, options)
    written = []
    if certificate is not None and any(one.certificate for one in found.findings):
        written = found.write_certificates(certificate)
    if json:
        record = {**found.as_json(), "certificates": [str(one) for one in written]}
        sys.stdout.write(files.json_line(record).decode())
    else:
        print(found)
        for one in written:
            print(f"Wrote {one}; verify it with: cg4ai check {one}")
    if certificate is not None and not written:
        print("no rule is proven, so no certificate is written", file=sys.stderr)
    if found.refuted:
        raise typer.Exit(REFUTED)
    raise typer.Exit(PROVEN if found.holds else UNDECIDED)
