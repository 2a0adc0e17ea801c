"""How large a source tree is, and how its parts hang together; of one tree or of two side by side.

    python benchmarks/size.py [TREE] [TREE]

Per package: files, lines, calls of `getattr` and `hasattr` (those on users' own objects included),
modules that a single other one imports. Of the whole: public names at the top, settings, words of
documentation, texts of errors that tests match, files that the walks of docs/architecture.md name,
and our own modules that a fit, a route and the checker load. What is loaded is measured in a
process of its own, by the code of that tree.

A probe is `getattr` or `hasattr` with the name of a field or method that a class of ours declares,
on anything but `self`: an upper bound of those on our own types, since data frames have `columns`
and `index`, too. A ladder is a function that asks three times or more which of our classes one
thing is.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOTS = ("src/cg4ai", "checker/src/cg4ai_checker", "experiments")
FIT = """
import sys, warnings
import numpy as np
from cg4ai import ConstrainedClassifier
warnings.simplefilter("ignore")
x = np.random.default_rng(0).normal(size=(60, 3))
ConstrainedClassifier(hidden=(4,), steps=5, iteration_limit=1).fit(x, x[:, 0] > 0)
"""
ROUTE = """
import sys
from cg4ai.cli.main import main
small = ["scenarios=10", "priced=20", "first_steps=5", "later_steps=5", "rounds=1", "validation=20"]
pairs = [part for pair in small for part in ("--set", pair)]
main(["route", "abilene", "--hidden", "4", "--quiet", "--no-report", *pairs])
"""
CHECK = (
    "import sys\ntry:\n    import cg4ai_checker\nexcept ImportError:\n    import cg4ai.checker\n"
)
COUNT = """
ours = [name for name in sys.modules if name.split(".")[0] in ("cg4ai", "cg4ai_checker")]
print("\\nloaded", len(ours))
"""
SETTINGS = {
    "settings of a route": ("RouteSettings", "RouteRecipe", "Recipe"),
    "settings of the loop": ("Settings",),
    "settings of an estimator": ("Parameters",),
    "settings of the gradient pricer": ("GradientPricer",),
}


def modules_of(tree: Path) -> dict[str, Path]:
    found = {}
    for root in ROOTS:
        base = tree / root
        for path in sorted(base.rglob("*.py")):
            inner = path.relative_to(base.parent).with_suffix("").parts
            found[".".join(inner).removesuffix(".__init__")] = path
    return found


def part_of(module: str) -> str:
    """`cg4ai.colgen.loop` is part of `cg4ai.colgen`; what lies directly in cg4ai, of `cg4ai`."""
    names = module.split(".")
    return ".".join(names[: 2 if names[0] == "cg4ai" and len(names) > 2 else 1])


def importers_of(modules: dict[str, Path]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    found[whole if whole in modules else node.module].add(name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.name].add(name)
    return found


def measure_parts(tree: Path) -> dict[str, Counter[str]]:
    modules = modules_of(tree)
    importers = importers_of(modules)
    parts: dict[str, Counter[str]] = defaultdict(Counter)
    for name, path in modules.items():
        text = path.read_text(encoding="utf-8")
        figures = {
            "files": 1,
            "lines": len(text.splitlines()),
            "getattr": len(re.findall(r"\b(?:getattr|hasattr)\(", text)),
            "one importer": int(path.name != "__init__.py" and len(importers[name]) == 1),
        }
        for part in (part_of(name), "all but experiments" if name[:3] == "cg4" else "experiments"):
            if part != "experiments" or name[:3] != "cg4":
                parts[part].update(figures)
    return parts


def sources_of(tree: Path) -> list[ast.Module]:
    """The packages alone, without the experiments."""
    modules = modules_of(tree)
    own = [path for name, path in modules.items() if name.startswith("cg4ai")]
    return [ast.parse(path.read_text(encoding="utf-8")) for path in own]


def measure_wiring(tree: Path) -> dict[str, str]:
    """How often the code asks what a thing is, instead of knowing."""
    sources = sources_of(tree)
    classes = [node for one in sources for node in ast.walk(one) if isinstance(node, ast.ClassDef)]
    names = {kind.name for kind in classes}
    members = [one for kind in classes for one in kind.body]
    declared = {one.name for one in members if isinstance(one, ast.FunctionDef)}
    fields = [one.target for one in members if isinstance(one, ast.AnnAssign)]
    declared |= {one.id for one in fields if isinstance(one, ast.Name)}
    found: Counter[str] = Counter()
    for source in sources:
        for node in ast.walk(source):
            if isinstance(node, ast.Call):
                found["probes of declared names"] += _is_probe(node, declared)
                found["isinstance"] += _is_call_of(node, "isinstance")
                found["isinstance of our own classes"] += bool(_asked_of(node, names))
            elif isinstance(node, ast.FunctionDef):
                calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
                asked = Counter(filter(None, (_asked_of(one, names) for one in calls)))
                found["ladders of isinstance"] += sum(count >= 3 for count in asked.values())
    return {name: str(found[name]) for name in found}


def _is_call_of(node: ast.Call, *names: str) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in names


def _is_probe(node: ast.Call, declared: set[str]) -> bool:
    if not _is_call_of(node, "getattr", "hasattr") or len(node.args) < 2:
        return False
    thing, name = node.args[:2]
    known = isinstance(name, ast.Constant) and name.value in declared
    return known and ast.unparse(thing) != "self"


def _asked_of(node: ast.Call, classes: set[str]) -> str:
    """What is asked whether it is of our classes; empty if nothing is."""
    if not _is_call_of(node, "isinstance"):
        return ""
    kinds = {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)}
    return ast.unparse(node.args[0]) if kinds & classes else ""


def count_walk(tree: Path, walk: str) -> str:
    """Files that a walk of docs/architecture.md names."""
    page = (tree / "docs/architecture.md").read_text(encoding="utf-8")
    part = page.partition(f"<!-- walk: {walk} -->")[2].partition("<!-- end -->")[0]
    return str(len(set(re.findall(r"`([\w/]+\.py)`", part))))


def fields_of(tree: Path, names: tuple[str, ...]) -> int:
    """Annotated fields of the classes of these names, wherever they stand."""
    count = 0
    for module, path in modules_of(tree).items():
        if not module.startswith("cg4ai."):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name in names:
                fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
                count += sum(not ast.unparse(one.target).startswith("_") for one in fields)
    return count


def loaded(tree: Path, program: str) -> str:
    """How many of our modules a program has loaded when it ends."""
    search = [str(tree / "src"), str(tree / "checker/src"), str(tree)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(search), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program + COUNT],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    found = re.search(r"^loaded (\d+)$", done.stdout, re.MULTILINE)
    return found.group(1) if found else f"failed: {done.stderr.strip()[-80:]}"


def public_names(tree: Path) -> int:
    source = ast.parse((tree / "src/cg4ai/__init__.py").read_text(encoding="utf-8"))
    for node in source.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return len(ast.literal_eval(node.value))
    return 0


def measure_whole(tree: Path) -> dict[str, str]:
    pages = [*sorted((tree / "docs").glob("*.md")), tree / "README.md"]
    tests = [path.read_text(encoding="utf-8") for path in (tree / "tests").rglob("*.py")]
    figures = {
        "public names at the top": str(public_names(tree)),
        "words of documentation": str(sum(len(p.read_text().split()) for p in pages)),
        "pages of documentation": str(len(pages)),
        "texts of errors that tests match": str(sum(text.count("match=") for text in tests)),
        "files in the walk of a routing run": count_walk(tree, "routing"),
        "files in the walk of a fit": count_walk(tree, "fit"),
        "modules that a fit loads": loaded(tree, FIT),
        "modules that a route loads": loaded(tree, ROUTE),
        "modules that the checker loads": loaded(tree, CHECK),
    }
    settings = {name: str(fields_of(tree, kinds)) for name, kinds in SETTINGS.items()}
    return figures | measure_wiring(tree) | settings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", nargs="*", type=Path, default=[Path()])
    trees = [tree.resolve() for tree in parser.parse_args().trees]
    measured = [measure_parts(tree) for tree in trees]
    kinds = ("files", "lines", "getattr", "one importer")
    print("| part |" + "".join(f" {kind} |" for _ in trees for kind in kinds))
    print("| --- |" + " --- |" * len(trees) * len(kinds))
    for name in sorted({name for parts in measured for name in parts}):
        cells = [f" {parts[name][kind] or ''} |" for parts in measured for kind in kinds]
        print(f"| {name} |" + "".join(cells))
    whole = [measure_whole(tree) for tree in trees]
    print("\n| of the whole |" + "".join(f" {tree.name} |" for tree in trees))
    print("| --- |" + " --- |" * len(trees))
    for name in whole[0]:
        print(f"| {name} |" + "".join(f" {figures[name]} |" for figures in whole))


if __name__ == "__main__":
    main()
