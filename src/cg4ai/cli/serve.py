"""`cg4ai serve`: a finished run behind HTTP; the work is in `cg4ai.serve`."""

from __future__ import annotations

import os
import re
from typing import Annotated

import typer

from cg4ai.cli.completion import RunFolder
from cg4ai.cli.program import INTERRUPTED
from cg4ai.errors import InvalidSettings
from cg4ai.serve.limits import ServeLimits

OPTIONS = {
    "body_mib": "--max-body",
    "rows": "--max-rows",
    "seconds": "--time-limit",
    "waiting": "--max-waiting",
    "connections": "--max-connections",
    "drift_window": "--drift-window",
}


def serve(
    folder: RunFolder,
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on; the default accepts this machine only.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 8000,
    max_body: Annotated[
        float, typer.Option(metavar="MIB", help="Largest request body.")
    ] = ServeLimits.body_mib,
    max_rows: Annotated[
        int, typer.Option(metavar="N", help="Largest number of rows in a request.")
    ] = ServeLimits.rows,
    time_limit: Annotated[
        float,
        typer.Option(metavar="S", help="Time limit of a request, from its first byte."),
    ] = ServeLimits.seconds,
    max_waiting: Annotated[
        int, typer.Option(metavar="N", help="Largest number of requests in work.")
    ] = ServeLimits.waiting,
    max_connections: Annotated[
        int, typer.Option(metavar="N", help="Largest number of open connections.")
    ] = ServeLimits.connections,
    drift_window: Annotated[
        int,
        typer.Option(metavar="N", help="Rows over which metrics say how many lie outside."),
    ] = ServeLimits.drift_window,
    watch: Annotated[
        float,
        typer.Option(
            min=0, metavar="S", help="Look for a new run in the folder every S seconds; 0: never."
        ),
    ] = 0.0,
) -> None:
    """Serve predictions of the run in RUN over HTTP.

    POST /predict and /explain take {"rows": [{"column": value, ...}, ...]}. GET / is the model
    card, /docs lists all endpoints, /metrics is for Prometheus. Bad input gets code 422 and the
    message of cg4ai predict. POST /reload or the signal SIGHUP loads a new run from RUN without
    losing a request; --watch does so automatically when the new run has ended. If the variable
    CG4AI_TOKEN is set, requests need the header Authorization: Bearer TOKEN. Exit code 0 or 130:
    stopped; 2: bad input, such as a port in use. See docs/serving.md.
    """
    from cg4ai.serve.gate import TOKEN, read_token
    from cg4ai.serve.server import ServerOptions
    from cg4ai.serve.server import serve as answer

    try:
        limits = ServeLimits(
            body_mib=max_body,
            rows=max_rows,
            seconds=time_limit,
            waiting=max_waiting,
            connections=max_connections,
            drift_window=drift_window,
        )
    except InvalidSettings as error:
        named = re.sub(r"\b(\w+)(?= must )", lambda one: OPTIONS[one[0]], str(error))
        raise InvalidSettings(named) from error
    token = read_token(os.environ.get(TOKEN))
    try:
        answer(folder, ServerOptions(host, port, token, watch), limits)
    except KeyboardInterrupt:  # how a server is stopped, and nothing is lost
        raise typer.Exit(INTERRUPTED) from None
