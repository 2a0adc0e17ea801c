"""Packages that only part of cg4ai needs: imported where they are used, named when missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from cg4ai.errors import MissingExtra

EXTRA_OF = {
    "fastapi": "serve",
    "matplotlib": "plots",
    "networkx": "routing",
    "nlopt": "routing",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "prometheus_client": "serve",
    "topohub": "routing",
    "uvicorn": "serve",
}


def import_optional(module: str) -> Any:
    """The module (`mlxtend.data`), or an error that names the extra which brings its package."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(
            f"this needs the package {package} ({error}): {format_install_command(package)}"
        ) from error


def format_install_command(package: str) -> str:
    """The command that installs an optional package: by its extra, where one has it."""
    extra = EXTRA_OF.get(package)
    return f"pip install {package}" if extra is None else f"pip install 'cg4ai[{extra}]'"
