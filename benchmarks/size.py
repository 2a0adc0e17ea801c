"""Files and physical lines of each package, of one source tree or of two side by side.

python benchmarks/size.py . [/somewhere/before]
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path


def sizes(tree: Path) -> tuple[Counter[str], Counter[str]]:
    """Files and lines by package; what lies directly in cg4ai is counted under its own name."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for root in ("src/cg4ai", "experiments"):
        for path in sorted((tree / root).rglob("*.py")):
            inner = path.relative_to(tree / root).parts
            package = root.removeprefix("src/") + (f"/{inner[0]}" if len(inner) > 1 else "")
            for name in (package, f"total {root}"):
                files[name] += 1
                lines[name] += len(path.read_text().splitlines())
    return files, lines


def main() -> None:
    trees = [sizes(Path(name)) for name in sys.argv[1:] or ["."]]
    names = sorted({name for files, _ in trees for name in files})
    print("| package |" + " files | lines |" * len(trees))
    print("| --- |" + " --- | --- |" * len(trees))
    for name in names:
        cells = [f" {files[name] or ''} | {lines[name] or ''} |" for files, lines in trees]
        print(f"| {name} |" + "".join(cells))


if __name__ == "__main__":
    main()
