"""What `train`, `route` and `digits` have in common: the runner with a screen to show itself on."""

from __future__ import annotations

import time

from cg4ai.apps.options import RunOptions
from cg4ai.cli.options import Given


def run(name: str, given: Given, options: RunOptions) -> int:
    """Run the application's command; returns the exit code."""
    started = time.perf_counter()  # what is imported now takes seconds of a time limit
    from cg4ai.apps.runner import application, execute
    from cg4ai.cli.progress import progress

    mode = "json" if options.json else "quiet" if options.quiet else "auto"
    with progress(mode) as screen:
        return execute(application(name), given, options, screen, started=started)
