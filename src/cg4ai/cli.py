"""The command `cg4ai`: names, options and help; the work is done in `cg4ai.commands`.

Nothing heavy is imported here, so that `cg4ai --help` answers at once. Exit codes: 0 all
requirements met; 1 unexpected failure, and for certify and check: not proven; 2 bad input; 3 some
requirement or guarantee not met; 130 interrupted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cg4ai.errors import Cg4aiError, InvalidInput, SolverFailure

FAILURE, BAD_INPUT, INTERRUPTED = 1, 2, 130

app = typer.Typer(
    help="Train models that keep hard rules, and say what is guaranteed.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DataFile = Annotated[Path, typer.Argument(metavar="DATA.csv", help="CSV file with a header.")]
RunFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that train wrote.")]
RulesFile = Annotated[
    Path, typer.Option("--rules", metavar="RULES.json", help="Rules to keep; see docs/rules.md.")
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; `arguments` are the process's own if None."""
    try:
        app(args=None if arguments is None else list(arguments), prog_name="cg4ai")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else FAILURE
    except Cg4aiError as error:
        print(f"error: {_one_line(str(error))}", file=sys.stderr)
        return FAILURE if isinstance(error, SolverFailure) else BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    return 0


def _one_line(message: str) -> str:
    """A message of several lines joined, so that scripts find the whole error on one."""
    return re.sub(r"\s*\n\s*", "; ", re.sub(r":\s*\n\s*", ": ", message.strip()))


def _version(wanted: bool) -> None:
    if wanted:
        from cg4ai import __version__

        print(f"cg4ai {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


@app.command(
    short_help="Train on a CSV file under rules.",
    epilog="\b\nExample:\n"
    "  cg4ai train patients.csv --target diagnosis --rules rules.json --out run",
)
def train(
    data: DataFile,
    *,
    target: Annotated[str, typer.Option(metavar="COLUMN", help="Column to predict.")],
    rules: RulesFile,
    out: Annotated[Path, typer.Option(metavar="DIR", help="New folder for the run.")],
    task: Annotated[
        str | None,
        typer.Option(metavar="TASK", help="classification or regression; guessed if left out."),
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column that is no feature (repeatable)."),
    ] = None,
    members: Annotated[
        str, typer.Option(help="network, affine, stump, tree, forest or boosting; or several: a,b.")
    ] = "network",
    scores: Annotated[
        str, typer.Option(help="Classification scores: probability or logit.")
    ] = "probability",
    hidden: Annotated[str, typer.Option(help="Hidden layer sizes of networks, e.g. 32,16.")] = "16",
    restarts: Annotated[int, typer.Option(help="Networks trained per iteration.")] = 4,
    steps: Annotated[int, typer.Option(help="Training steps per network.")] = 300,
    column_limit: Annotated[int, typer.Option(help="Stop at this many members.")] = 100,
    iteration_limit: Annotated[int, typer.Option(help="Stop after this many iterations.")] = 15,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Begin no iteration after this.")
    ] = None,
    final_weights: Annotated[str, typer.Option(help="loss, uniform or vertex.")] = "loss",
    seed: Annotated[int, typer.Option(help="The same seed trains the same members.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[
        int, typer.Option(help="CPU threads; more than 1 pays off for large data only.")
    ] = 1,
    assign: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting (repeatable)."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was stopped or killed.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run in DIR.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Progress and result as JSON lines on stdout.")
    ] = False,
) -> None:
    """Train a mixture of models on DATA.csv that keeps the rules of RULES.json.

    Prints what is guaranteed and how that was established. Exit code 0: all requirements are met;
    3: some are not; 2: bad input; 130: interrupted (continue with --resume).
    """
    from cg4ai.commands import train as command

    options = command.TrainOptions(
        data=data,
        target=target,
        rules=rules,
        out=out,
        task=task,
        ignore=tuple(ignore or ()),
        members=members,
        scores=scores,
        hidden=hidden,
        restarts=restarts,
        steps=steps,
        column_limit=column_limit,
        iteration_limit=iteration_limit,
        time_limit=time_limit,
        final_weights=final_weights,
        seed=seed,
        device=device,
        threads=threads,
        assign=tuple(assign or ()),
        resume=resume,
        force=force,
        progress="json" if json else "quiet" if quiet else "auto",
    )
    raise typer.Exit(command.run(options))


@app.command(
    short_help="Predict with a trained mixture.",
    epilog="\b\nExample:\n  cg4ai predict run new_patients.csv --output predictions.csv",
)
def predict(
    folder: RunFolder,
    data: DataFile,
    *,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="Write here instead of to stdout.")
    ] = None,
) -> None:
    """Predict each row of DATA.csv; columns are matched by name, further ones are ignored."""
    from cg4ai.commands import predict as command

    command.run(folder, data, output=output)


@app.command(
    short_help="Check rules against a trained mixture.",
    epilog="\b\nExample:\n  cg4ai audit run --rules rules.json --data new_patients.csv",
)
def audit(
    folder: RunFolder,
    *,
    rules: RulesFile,
    data: Annotated[
        Path | None, typer.Option(metavar="DATA.csv", help="Data that the rules' rows refer to.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the audits as JSON.")] = False,
) -> None:
    """Recompute rules from the predictions of the mixture in DIR, on any data.

    Exit code 0: all hold; 3: some do not.
    """
    from cg4ai.commands import audit as command

    raise typer.Exit(command.run(folder, rules, data=data, as_json=json))


@app.command(
    short_help="Show a run: settings, history, result.",
    epilog="\b\nExample:\n  cg4ai show run",
)
def show(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder that train, route or digits wrote.")
    ],
) -> None:
    """Show the settings, the last iterations and the result of a run, finished or not."""
    from cg4ai.commands import show as command

    command.run(folder)


@app.command(
    short_help="Train a router that overloads no link.",
    epilog="\b\nExamples:\n  cg4ai route abilene --demands 5 --paths 3 --out router\n"
    "  cg4ai route abilene --demands 15 --guarantee certified --time-limit 900 --out proven",
)
def route(
    network: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK", help="SNDlib name, or a .txt, .xml, .graphml or .json file."
        ),
    ],
    *,
    demands: Annotated[int, typer.Option(help="How many of the largest demands.")] = 5,
    paths: Annotated[int, typer.Option(help="Shortest paths per demand, at most.")] = 3,
    load: Annotated[
        str,
        typer.Option(
            help="Least possible utilisation at the largest demands; none: volumes as given."
        ),
    ] = "0.99",
    demand_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Demands: source,target,volume."),
    ] = None,
    objective: Annotated[
        str, typer.Option(help="mlu, split (distance to optimal splits) or cost (of paths).")
    ] = "mlu",
    separator: Annotated[
        str, typer.Option(help="Search for overloads: ascent or nlopt.")
    ] = "ascent",
    guarantee: Annotated[
        str,
        typer.Option(
            help="attacked (a search finds no overload), certified (proven for the whole box) "
            "or shielded (corrected at inference)."
        ),
    ] = "attacked",
    hidden: Annotated[int | None, typer.Option(help="Units of a hidden layer.")] = None,
    layers: Annotated[int | None, typer.Option(help="Hidden layers.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="New folder for the run.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Train no group after this time.")
    ] = None,
    lean: Annotated[
        float | None,
        typer.Option(metavar="MLU", help="MLU to give up for fewer members; 0.005 if not given."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed trains the same members.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads; no more than cores are free.")] = 2,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was stopped or killed.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run in DIR.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Progress and result as JSON lines on stdout.")
    ] = False,
) -> None:
    """Train networks that split each demand of NETWORK over paths, for every demand vector.

    The largest demands span a box; in all of it no link may be overloaded. Prints the worst
    utilisation that a search found, the gap to optimal routing, and a plain network beside it.
    Exit code 0: no overload was found and the guarantee asked for was established; 3: not so;
    2: bad input; 1: no router came out, e.g. a time limit too short for each demand to have a
    member; 130: interrupted (continue with --resume).
    """
    from cg4ai.commands import route as command
    from cg4ai.routing.saved import Wanted

    wanted = Wanted(
        network=network,
        demands=demands,
        paths=paths,
        load=command.load_of(load),
        demand_file=demand_file,
        objective=objective,  # type: ignore[arg-type]  # checked there
        separator=separator,  # type: ignore[arg-type]
        guarantee=guarantee,  # type: ignore[arg-type]
        hidden=command.layers_of(hidden, layers),
        seed=seed,
        device=device,
        threads=threads,
        time_limit_s=float("inf") if time_limit is None else time_limit,
        lean=lean,
    )
    options = command.RouteOptions(
        out=out,
        resume=resume,
        force=force,
        progress="json" if json else "quiet" if quiet else "auto",
    )
    raise typer.Exit(command.run(wanted, options))


@app.command(
    short_help="Prove the rules of a run over their whole region.",
    epilog="\b\nExample:\n  cg4ai certify router --time-limit 300",
)
def certify(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder that route or train wrote.")
    ],
    *,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", help="Give up after this time.")
    ] = 600.0,
    cells: Annotated[int, typer.Option(help="Give up after this many cells.")] = 5_000_000,
    memory_limit: Annotated[
        float, typer.Option(metavar="GIB", help="Give up rather than take more memory.")
    ] = 4.0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on from a search that gave up.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Prove that no input of the region breaks a rule of the run in RUN, or find one that does.

    Writes RUN/certificate.cg4ai once all rules are proven. Exit code 0: proven; 1: refuted (the
    input is printed) or unknown (continue with --resume); 2: bad input.
    """
    from cg4ai.commands import certify as command

    options = command.CertifyOptions(
        time_limit_s=time_limit,
        cells=cells,
        memory_gib=memory_limit,
        device=device,
        resume=resume,
        quiet=quiet,
    )
    raise typer.Exit(command.run(folder, options))


@app.command(
    short_help="Verify a certificate with independent code.",
    epilog="\b\nExample:\n  cg4ai check router/certificate.cg4ai --run router",
)
def check(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Certificate that certify or route wrote.")
    ],
    *,
    folder: Annotated[
        Path | None,
        typer.Option("--run", metavar="DIR", help="Also compare with the mixture stored here."),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Verify FILE from its own content alone, and say what it proves.

    Every bound is recomputed by code that shares nothing with the search that found the proof.
    Exit code 0: all is proven; 1: rejected; 2: the file cannot be read.
    """
    from cg4ai.commands import check as command

    raise typer.Exit(command.run(file, folder=folder, quiet=quiet))


@app.command(
    short_help="Train a digit classifier that answers listed images right.",
    epilog="\b\nExample:\n  cg4ai digits hard --n 100 --rule margin --augment --out classifier",
)
def digits(
    scenario: Annotated[
        str,
        typer.Argument(metavar="SCENARIO", help="plain, hard, robust, correct or relabel."),
    ],
    *,
    n: Annotated[int, typer.Option("--n", help="Training images, a multiple of 10.")] = 100,
    rule: Annotated[
        str, typer.Option(help="margin (averages logits) or probability (averages those).")
    ] = "margin",
    hard_per_class: Annotated[
        int | None,
        typer.Option(help="Images per class that are rows, others train; unset: all do both."),
    ] = None,
    constraints_only: Annotated[
        bool, typer.Option("--constraints-only", help="Rows alone, no loss.")
    ] = False,
    augment: Annotated[
        bool, typer.Option("--augment", help="Train on affine copies too; they are never rows.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="MNIST IDX files; the 5,000 built-in images if unset."),
    ] = None,
    hidden: Annotated[int, typer.Option(help="Hidden neurons of a member.")] = 4,
    attack: Annotated[str, typer.Option(help="For robust: flips, smallest or both.")] = "flips",
    pixels: Annotated[int, typer.Option(help="For robust: pixels that may be flipped.")] = 100,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="New folder for the run.")] = None,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Train no group after this time.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the training images and the members.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads; no more than cores are free.")] = 2,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a run that was stopped or killed.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier run in DIR.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Progress and result as JSON lines on stdout.")
    ] = False,
) -> None:
    """Train a mixture of small networks on images of digits, with rules on listed images.

    Scenarios: plain (no rules), hard (listed images must be right), robust (attacked images too),
    correct (what the base member gets wrong), relabel (a 3 becomes a 2). Exit code 0: every
    required image is answered as demanded; 3: some are not; 2: bad input; 130: interrupted.
    """
    from cg4ai.commands import digits as command
    from cg4ai.digits.saved import Wanted

    wanted = Wanted(
        scenario=scenario,  # type: ignore[arg-type]  # checked there
        n=n,
        rule=rule,  # type: ignore[arg-type]
        hard_per_class=hard_per_class,
        constraints_only=constraints_only,
        augment=augment,
        data=data,
        hidden=hidden,
        attack=attack,  # type: ignore[arg-type]
        pixels=pixels,
        seed=seed,
        device=device,
        threads=threads,
        time_limit_s=float("inf") if time_limit is None else time_limit,
    )
    options = command.DigitsOptions(
        out=out,
        resume=resume,
        force=force,
        progress="json" if json else "quiet" if quiet else "auto",
    )
    raise typer.Exit(command.run(wanted, options))


@app.command(
    short_help="A two-minute demonstration on built-in data.",
    epilog="\b\nExample:\n  cg4ai demo --out demo-run",
)
def demo(
    *,
    data: Annotated[
        str, typer.Option(help="routing, or cancer: a tumour classifier under rules.")
    ] = "routing",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the trained mixture here.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same result.")] = 0,
) -> None:
    """Train a router of the network Abilene that overloads no link, beside one that may."""
    if data == "cancer":
        from cg4ai.commands import demo as tumours

        raise typer.Exit(tumours.run(out, seed=seed))
    if data != "routing":
        raise InvalidInput(f"--data must be routing or cancer, got {data!r}")
    from cg4ai.commands import demo_routing

    raise typer.Exit(demo_routing.run(out, seed=seed))


reproduce_app = typer.Typer(
    help="Repeat the experiments of the paper.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(reproduce_app, name="reproduce", short_help="Repeat the experiments of the paper.")


@reproduce_app.command(
    "routing",
    short_help="The 41 routing configurations.",
    epilog="\b\nExample:\n  cg4ai reproduce routing abilene-5-3 polska-5-3 --out runs",
)
def reproduce_routing(
    configurations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NETWORK-D-P ...]", help="Which; all 41 and the ablation if left out."
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of all runs.")] = Path(
        "reproduce-routing"
    ),
    mode: Annotated[str, typer.Option(help="ours, or paper: the method as published.")] = "ours",
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop training each after this time.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed trains the same members.")] = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Only tables and figures of what is there.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Run again what is there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Train and measure every routing configuration of the paper, resuming what was stopped.

    Writes table.csv, table.md (our figures beside the paper's) and figures into DIR, from all that
    has ended there in this mode. A configuration without a result does not end the others. Exit
    code 0: each has a result and no overload was found; 3: not so; 2: bad input; 130: interrupted.
    """
    from cg4ai.commands import reproduce as command
    from cg4ai.routing.saved import Wanted

    usual = Wanted(
        network="",
        mode=mode,  # type: ignore[arg-type]  # checked there
        seed=seed,
        device=device,
        threads=threads,
        time_limit_s=float("inf") if time_limit is None else time_limit,
    )
    raise typer.Exit(
        command.run(
            configurations or (), out, usual, report_only=report_only, force=force, quiet=quiet
        )
    )


@reproduce_app.command(
    "digits",
    short_help="The experiments on digits.",
    epilog="\b\nExample:\n  cg4ai reproduce digits main --seeds 42 --sizes 100 --out runs",
)
def reproduce_digits(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PART ...]",
            help="main, splits, sizes, methods, robust, correct, relabel or a single variant such "
            "as margin-only; all if left out.",
        ),
    ] = None,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of all runs.")] = Path(
        "reproduce-digits"
    ),
    seeds: Annotated[
        list[str] | None, typer.Option(metavar="S,S", help="42,43,44 if left out.")
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(metavar="N,N", help="Training images; 100,1000 (sizes: 10 to 1000)."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="MNIST IDX files; the 5,000 built-in images if unset."),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
    quick: Annotated[
        bool, typer.Option("--quick", help="Train far too little: to see that all works.")
    ] = False,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Only tables and figures of what is there.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Run again what is there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Train and measure everything of the paper's section on digits, resuming what was stopped.

    Several processes may share DIR: each takes what no other is at. Writes DIR/tables (our figures
    beside the paper's) and DIR/figures, from all that has ended there. Exit code 0: every required
    image of these parts is answered as demanded; 3: some are not.
    """
    from cg4ai.commands import reproduce as command
    from cg4ai.digits.reproduce import Plan
    from cg4ai.digits.units import SEEDS

    plan = Plan(
        out=out,
        seeds=command.numbers(seeds, "--seeds") if seeds else SEEDS,
        sizes=command.numbers(sizes, "--sizes") if sizes else None,
        data=data,
        device=device,
        threads=threads,
        quick=quick,
    )
    raise typer.Exit(
        command.run_digits(
            tuple(parts or ()), plan, report_only=report_only, force=force, quiet=quiet
        )
    )


if __name__ == "__main__":
    sys.exit(main())
