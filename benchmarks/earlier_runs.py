"""Are runs of an earlier version still read: predictions, certificates and `show`?

    git worktree add --detach /somewhere/base COMMIT
    python benchmarks/earlier_runs.py /somewhere/base --out earlier [--networks 41] [--certified 6]

The code of the tree trains routers of the paper's configurations, each behind a shield, and of the
first few one that is proven; they are small, since what is tried is reading. Then the code beside
this file reads each folder: predictions at 200 demand vectors must be the same bits, the checker
must accept the certificate with its folder, and `cg4ai show` must end with 0. Exits with 1 if one
does not.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path

import before_after
from before_after import sets

import cg4ai_checker.command
from cg4ai.cli.main import main as run_command
from cg4ai.routing import CONFIGURATIONS

TINY = (
    *("scenarios=20", "priced=40", "first_steps=40", "later_steps=20", "batch_size=32"),
    *("rounds=1", "validation=20"),
)
# run by the code of the tree: one process for all, since starting takes longer than training
TRAINING = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import before_after
from cg4ai.cli.main import main
for command in json.loads(sys.stdin.read()):
    folder = Path(command[command.index("--out") + 1])
    if not (folder / "predictions.bin").exists():
        print(folder.name, flush=True)
        main(command)
        before_after.predict(folder)
"""


def command_of(folder: Path, configuration: tuple[str, int, int], guarantee: str) -> list[str]:
    network, demands, paths = configuration
    asked = ["route", network, "--demands", str(demands), "--paths", str(paths), "--hidden", "8"]
    how = ["--guarantee", guarantee, "--seed", "0", "--threads", "1", "--quiet", "--no-report"]
    return [*asked, *how, *sets(TINY), "--out", str(folder), "--force"]


def train(tree: Path, commands: list[list[str]]) -> None:
    subprocess.run(
        [sys.executable, "-c", TRAINING, str(Path(__file__).parent)],
        input=json.dumps(commands),
        env=before_after.environment_of(tree),
        cwd=tree,
        text=True,
        check=True,
    )


def read(folder: Path) -> dict[str, bool]:
    """What this version does with the folder of another."""
    stored = (folder / "predictions.bin").read_bytes()
    before_after.predict(folder)
    certificate = [str(folder / "certificate.cg4ai"), "--run", str(folder)]
    with contextlib.redirect_stdout(io.StringIO()):
        accepted = cg4ai_checker.command.main(certificate) == 0
        shown = run_command(["show", str(folder)]) == 0
    return {
        "predicts the same bits": (folder / "predictions.bin").read_bytes() == stored,
        "certificate accepted": accepted,
        "shown": shown,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--networks", type=int, default=len(CONFIGURATIONS))
    parser.add_argument("--certified", type=int, default=6)
    options = parser.parse_args()
    asked = [(one, "shielded") for one in CONFIGURATIONS[: options.networks]]
    asked += [(one, "certified") for one in CONFIGURATIONS[: options.certified]]
    out = options.out.resolve()
    folders = [out / "-".join(map(str, (*one, guarantee))) for one, guarantee in asked]
    made = zip(folders, asked, strict=True)
    train(options.tree.resolve(), [command_of(folder, *one) for folder, one in made])
    certified = [one for one in folders if (one / "certificate.cg4ai").exists()]
    counts: dict[str, int] = {}
    for folder in certified:
        found = read(folder)
        for what, good in found.items():
            counts[what] = counts.get(what, 0) + good
        bad = [what for what, good in found.items() if not good]
        print(f"{folder.name}: {'NOT ' + ', NOT '.join(bad) if bad else 'read'}", flush=True)
    print(f"\n{len(certified)} of {len(folders)} runs wrote a certificate")
    for what, count in counts.items():
        print(f"{what}: {count} of {len(certified)}")
    return 0 if all(count == len(certified) for count in counts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
