"""`cg4ai-check FILE`: verify a certificate, and say what it proves; `cg4ai check` is the same."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from cg4ai_checker import __version__
from cg4ai_checker.errors import Cg4aiError, Rejected

PROVEN, REJECTED, UNREADABLE, INTERRUPTED = 0, 1, 2, 130

DESCRIPTION = "Verify a certificate of cg4ai from its own content alone, and print what it proves."
EPILOG = """\
examples:
  cg4ai-check router/certificate.cg4ai
  cg4ai-check router/certificate.cg4ai --run router

exit codes:
  0  every claim of the file is proven (and, with --run, the folder holds its model)
  1  rejected: altered, malformed, not proven, or about another model
  2  the file or the folder cannot be read
  130  interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; `arguments` are the process's own if None."""
    options = _parser().parse_args(arguments)
    try:
        return run(options.file, folder=options.folder, quiet=options.quiet)
    except Cg4aiError as error:
        print(f"error: {_one_line(str(error))}", file=sys.stderr)
        return UNREADABLE
    except MemoryError:
        print("error: there is not enough memory for this certificate", file=sys.stderr)
        return REJECTED
    except KeyboardInterrupt:
        return INTERRUPTED


def run(file: Path, *, folder: Path | None, quiet: bool) -> int:
    """Print what is proven, or why not; returns PROVEN or REJECTED, or raises Unreadable."""
    from cg4ai_checker import compare, verdict  # NumPy and SciPy, which --help does not need

    live = sys.stderr.isatty() and not quiet

    def show(done: int, rules: int) -> None:
        print(f"\r{done} of {rules} rules proven", end="", file=sys.stderr, flush=True)

    try:
        proven = verdict(file, progress=show if live else None)
        said = [] if folder is None else compare(proven.claim, folder)
    except Rejected as error:
        print(f"REJECTED: {error}", file=sys.stderr)
        return REJECTED
    finally:
        if live:
            print(file=sys.stderr)
    print(proven)
    for line in said:
        print(f"  {line}")
    if folder is None:
        print("  To check that this is the model you use, compare it with its folder: --run DIR.")
    return PROVEN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cg4ai-check",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="certificate to verify")
    parser.add_argument(
        "--run",
        type=Path,
        dest="folder",
        metavar="FOLDER",
        help="also compare it with the model that is stored in this folder",
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--version", action="version", version=f"cg4ai-checker {__version__}")
    return parser


def _one_line(message: str) -> str:
    return re.sub(r"\s*\n\s*", "; ", message.strip())
