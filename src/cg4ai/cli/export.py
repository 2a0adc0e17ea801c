"""`cg4ai export`: a finished run as files that other programs run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cg4ai.cli.completion import RunFolder

if TYPE_CHECKING:
    from cg4ai.apps.protocol import Signature

COMPARED = 1000  # inputs at which a file is compared with predict


def export(
    folder: RunFolder,
    *,
    onnx: Annotated[
        Path | None, typer.Option(metavar="FILE.onnx", help="ONNX model, including the shield.")
    ] = None,
    float32: Annotated[
        bool, typer.Option("--float32", help="With --onnx: round all numbers to 32 bits.")
    ] = False,
    torch: Annotated[
        Path | None, typer.Option(metavar="FILE.pt2", help="Program of torch.export.")
    ] = None,
    agents: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Routers: new folder with one policy per node."),
    ] = None,
) -> None:
    """Export the model of a run for other programs.

    --onnx and --torch write mixture, completion and shield as one graph for any number of inputs.
    It computes in double precision and equals cg4ai predict --no-fallback up to rounding errors;
    the rounding by --granularity is left to the caller. The file states the order of the inputs.
    Guarantees hold in double precision only; with --float32 the difference is measured and printed.

    --agents writes one policy file for each sending node of a router trained with --agent-scope own
    or source, and policy.py, which computes the node's splits with NumPy.
    """
    from cg4ai.apps.folders import load_trained
    from cg4ai.errors import InvalidInput

    if onnx is None and torch is None and agents is None:
        raise InvalidInput(
            "nothing to export: name a file with --onnx FILE or --torch FILE, or a folder with "
            "--agents DIR",
            code="missing-argument",
        )
    if float32 and onnx is None:
        raise InvalidInput("--float32 needs --onnx FILE", code="conflict")
    ensemble, described = load_trained(folder)
    if agents is not None:
        for line in described.export_agents(ensemble, agents):
            print(line)
    if described.export_note and (onnx is not None or torch is not None):
        print(described.export_note)
    if onnx is not None:
        print(_onnx(ensemble, described.signature, onnx, "float32" if float32 else "float64"))
    if torch is not None:
        print(_program(ensemble, described.signature, torch))


def _onnx(ensemble: Any, signature: Signature, path: Path, precision: Any) -> str:
    from cg4ai.ensemble.export import build_onnx_model, compute_difference
    from cg4ai.errors import MissingExtra
    from cg4ai.runs import files

    names = (signature.takes, signature.gives)
    columns = {"inputs": signature.inputs, "outputs": signature.outputs}
    with _said(f"the ONNX model of {_members(ensemble)}"):
        model = build_onnx_model(ensemble, precision=precision, names=names, columns=columns)
    try:
        apart = compute_difference(ensemble, model, signature.sample(COMPARED))
        said = f"at {COMPARED} random inputs at most {apart:.1e} away from the model"
    except MissingExtra:
        said = "not compared with the model, since onnxruntime is not installed"
    files.write_bytes(path, model)
    kept = "; guarantees hold in float64 only" if precision == "float32" else ""
    return f"{path} written: {_shape(signature)}, {precision}, {said}{kept}"


def _program(ensemble: Any, signature: Signature, path: Path) -> str:
    import io

    import torch

    from cg4ai.ensemble.export import export_program
    from cg4ai.runs import files

    stream = io.BytesIO()
    with _said(f"the program of {_members(ensemble)}"):
        torch.export.save(
            export_program(ensemble.to("cpu").as_module(), ensemble.input_size), stream
        )
    files.write_bytes(path, stream.getvalue())
    return f"{path} written: {_shape(signature)}, float64; torch.export.load(file).module() runs it"


@contextmanager
def _said(what: str) -> Iterator[None]:
    """What takes longer than a second is told: large models take minutes."""
    from cg4ai.clock import Review

    review = Review(say=lambda text: print(text, file=sys.stderr, flush=True), what="exporting")
    with review.activate(), review.stage(what):
        yield


def _members(ensemble: Any) -> str:
    return "1 member" if len(ensemble) == 1 else f"{len(ensemble)} members"


def _shape(signature: Signature) -> str:
    given, made = len(signature.inputs), len(signature.outputs)
    return f"{signature.takes} (n, {given}) -> {signature.gives} (n, {made})"
