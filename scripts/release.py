"""Build the release of both distributions into dist/, twice, and test it as it is installed.

Files are those of the last commit and their times are its time, so that everyone who builds a
commit gets the same bytes. Wheels are built from the sdists, so that both hold the same. Then both
wheels are installed in a new environment outside the checkout, where the commands, the README's
Python blocks and the checker are tried, and an SBOM of each is written.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECTS = {"cg4ai": ".", "cg4ai-checker": "checker"}
EXTRAS = "routing"  # what the README's blocks need
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """What a program prints, which is shown with its errors where it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"failed: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


# ---- building ------------------------------------------------------------------------------------


def export(folder: Path) -> None:
    """The files of the last commit, none that merely lies in the checkout."""
    archive = folder.with_suffix(".tar")
    run("git", "archive", "--output", archive, "HEAD", folder=ROOT)
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    archive.unlink()


def normalise(path: Path, epoch: int) -> None:
    """Rewrite an sdist with sorted names and without times, owners and rights of this machine."""
    with tarfile.open(path) as files:
        members = sorted(files.getmembers(), key=lambda one: one.name)
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as out:
            for old in members:
                new = tarfile.TarInfo(old.name)
                new.type, new.size, new.mtime = old.type, old.size, epoch
                new.mode = 0o755 if old.isdir() else 0o644
                out.addfile(new, files.extractfile(old) if old.isfile() else None)
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=epoch) as packed:
        packed.write(content.getvalue())


def build(out: Path, epoch: int) -> None:
    """Both sdists, and of each its wheel, into a new folder."""
    out.mkdir()
    settings = {
        "SOURCE_DATE_EPOCH": str(epoch),
        "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),  # the version of setuptools
        "PYTHONHASHSEED": "0",
    }
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "source"
        export(source)
        for name, folder in PROJECTS.items():
            tool = (sys.executable, "-m", "build", "--quiet", "--outdir", out)
            run(*tool, "--sdist", source / folder, folder=source, **settings)
            (sdist,) = out.glob(f"{name.replace('-', '_')}-[0-9]*.tar.gz")
            normalise(sdist, epoch)
            with tarfile.open(sdist) as files:
                files.extractall(Path(place), filter="data")
            unpacked = Path(place) / sdist.name.removesuffix(".tar.gz")
            run(*tool, "--wheel", unpacked, folder=unpacked, **settings)


def differing(one: Path, other: Path) -> list[str]:
    """Names of files that are not byte for byte the same in both folders."""
    names = {file.name for folder in (one, other) for file in folder.iterdir()}
    return sorted(
        name
        for name in names
        if not ((one / name).exists() and (other / name).exists())
        or (one / name).read_bytes() != (other / name).read_bytes()
    )


# ---- testing what is installed -------------------------------------------------------------------


class Environment:
    """A new virtual environment, and a folder outside the checkout to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir(parents=True)
        venv.create(folder / "venv", with_pip=True)
        self.programs = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")

    def run(self, program: str, *arguments: str | Path) -> str:
        # nothing of the checkout may be imported
        return run(self.programs / program, *arguments, folder=self.folder, PYTHONPATH="")

    def install(self, *what: str | Path) -> None:
        constraints = ROOT / "constraints.txt"
        self.run("python", "-m", "pip", "install", "--quiet", "--constraint", constraints, *what)


def wheel(dist: Path, name: str) -> Path:
    (found,) = dist.glob(f"{name.replace('-', '_')}-[0-9]*.whl")
    return found


def check_by_command(environment: Environment) -> None:
    """`cg4ai-check` accepts a true certificate, with its folder, and rejects an altered one."""
    writer = ROOT / "checker" / "tests" / "handmade.py"
    shutil.copy(writer, environment.folder / "handmade.py")
    code = (
        "from pathlib import Path; import handmade as made; made.write_folder(Path('stored'));"
        "Path('true.cg4ai').write_bytes(made.certificate(made.largest() + 0.05));"
        "Path('false.cg4ai').write_bytes(made.certificate(made.largest() - 0.05))"
    )
    environment.run("python", "-c", code)
    assert "Proven" in environment.run("cg4ai-check", "true.cg4ai", "--run", "stored")
    judge = "import sys; from cg4ai_checker.command import main; sys.exit(main(sys.argv[1:]) != 1)"
    environment.run("python", "-c", judge, "false.cg4ai")


def test_checker_alone(dist: Path, folder: Path) -> None:
    environment = Environment(folder)
    environment.install(wheel(dist, "cg4ai-checker"))
    check_by_command(environment)
    print("cg4ai-checker alone: its command accepts a true and rejects a false certificate")


def test_both(dist: Path, folder: Path, epoch: int) -> None:
    environment = Environment(folder)
    environment.install(wheel(dist, "cg4ai-checker"), f"{wheel(dist, 'cg4ai')}[{EXTRAS}]")
    check_by_command(environment)
    environment.run("cg4ai", "doctor")
    environment.run("cg4ai", "check", "true.cg4ai", "--run", "stored")
    environment.run("cg4ai", "demo")
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    (environment.folder / "readme.py").write_text("\n".join(blocks), encoding="utf-8")
    environment.run("python", "readme.py")
    for file in sorted(environment.folder.glob("*.cg4ai")):
        if file.name != "false.cg4ai":
            environment.run("cg4ai-check", file)
    print(f"both: doctor, demo, cg4ai check, cg4ai-check and {len(blocks)} blocks of the README")
    for name in PROJECTS:
        files = sorted(dist.glob(f"{name.replace('-', '_')}-[0-9]*"))
        text = run(
            environment.programs / "python",
            ROOT / "scripts" / "sbom.py",
            name,
            *files,
            folder=environment.folder,
            PYTHONPATH="",
            SOURCE_DATE_EPOCH=str(epoch),
        )
        (dist / f"{name}.cdx.json").write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--no-install", action="store_true", help="build and compare alone")
    options = parser.parse_args(arguments)
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    epoch = int(run("git", "log", "-1", "--format=%ct", folder=ROOT))
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as place:
        build(dist, epoch)
        build(Path(place) / "again", epoch)
        if different := differing(dist, Path(place) / "again"):
            sys.exit(f"the two builds differ in {', '.join(different)}")
        print("built twice, byte for byte the same:")
        print(*sorted(file.name for file in dist.iterdir()), sep="\n")
        if not options.no_install:
            test_checker_alone(dist, Path(place) / "alone")
            test_both(dist, Path(place) / "both", epoch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
