"""The process that serves: its socket, its signals, and looking for a new run in the folder."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch

from cg4ai.ensemble.saved import RECORD
from cg4ai.errors import InvalidInput
from cg4ai.extras import import_optional
from cg4ai.serve.connections import bounded_connections
from cg4ai.serve.gate import TOKEN
from cg4ai.serve.limits import BUSY, Refusal, ServeLimits
from cg4ai.serve.service import Service
from cg4ai.serve.web import make_app

HEADER, SUMMARY = "run.json", "summary.json"
WATCHED = (RECORD, SUMMARY)
KEPT_OPEN_S = 75  # an idle connection: longer than proxies do, so that none is closed under them
GRACE_S = 5  # beyond the time of a request, for those that are being answered at the end
OTHER_FILES = 128  # that a server has open beside its connections

State = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True)
class ServerOptions:
    """Where to listen, who may call, and how often to look for a new run (0: never)."""

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    watch_s: float = 0.0


def serve(folder: Path, place: ServerOptions, limits: ServeLimits) -> None:
    """Answer requests until the process is told to end; KeyboardInterrupt by Ctrl-C.

    What ends it is its own, from before it says that it is there until the last answer: between
    uvicorn's handlers and those around them a signal would be lost, and uvicorn hands SIGINT on to
    a process that may ignore it, as a shell's background jobs do.
    """
    for package in ("fastapi", "prometheus_client", "uvicorn"):
        import_optional(package)  # what is missing is said before anything is loaded
    torch.set_num_threads(1)  # one thread computes, and members are small
    _allow_files(limits)
    with SignalHandlers() as signals, _listening(place) as listener:
        service = Service(folder, limits)
        address = _address(listener)
        app = make_app(service, token=place.token, address=address)
        signals.server = server = _uvicorn(app, service)
        _say(service, place, address)
        asyncio.run(_run(server, service, listener, place, signals))
        if signals.ended_by == signal.SIGINT:
            raise KeyboardInterrupt


def _uvicorn(app: Any, service: Service) -> Any:
    uvicorn = import_optional("uvicorn")
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=bounded_connections(service.limits, service.metrics),
            log_level="warning",
            access_log=False,
            server_header=False,
            ws="none",
            timeout_keep_alive=KEPT_OPEN_S,
            timeout_graceful_shutdown=int(service.limits.seconds) + GRACE_S,
        )
    )
    server.capture_signals = nullcontext  # `SignalHandlers` has them
    return server


def _say(service: Service, place: ServerOptions, address: str) -> None:
    card = service.current.card
    print(
        f"Serving {card.interface.title} on {address} (model {card.model[:12]}). {card.sentence} "
        "Stop with Ctrl-C.",
        flush=True,
    )
    if place.token is None and not is_local(place.host):
        print(
            f"warning: {place.host} can be reached from other machines, and no token is asked "
            f"for; set {TOKEN}, or listen on 127.0.0.1",
            file=sys.stderr,
            flush=True,
        )


def is_local(host: str) -> bool:
    """Whether only this machine reaches a host."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


# ---- the socket ----------------------------------------------------------------------------------


@contextmanager
def _listening(place: ServerOptions) -> Iterator[socket.socket]:
    """A socket that listens: taken before a run is loaded, so that a taken port is said at once."""
    try:
        found = socket.getaddrinfo(
            place.host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, *_, where = found[0]
        listener = socket.create_server(where[:2], family=family, backlog=2048)
        # asyncio does not see that such a socket is of TCP: without it answers wait 40 ms
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError) as error:
        words = getattr(error, "strerror", None) or error
        raise InvalidInput(
            f"cannot listen on {place.host}, port {place.port}: {words}; choose another --port "
            "or --host"
        ) from error
    try:
        yield listener
    finally:
        listener.close()


def _allow_files(limits: ServeLimits) -> None:
    """Have the process open as many files as its connections, and those turned away, need."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    needed = 2 * limits.connections + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InvalidInput(
            f"{limits.connections} connections need {needed} files, and this process may open "
            f"{hard}; lower --max-connections, or raise ulimit -n"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _address(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


# ---- signals and new runs ------------------------------------------------------------------------


class SignalHandlers:
    """What ends a server and what has it load anew; nothing of it is lost while it starts or ends.

    Before there is a `server`, SIGINT and SIGTERM end the process at once. Afterwards they have it
    finish its requests, and `ended_by` is the first of them; another Ctrl-C does not wait. SIGHUP
    before `reload` is set is remembered in `reload_asked`.
    """

    def __init__(self) -> None:
        self.server: Any = None
        self.ended_by: int | None = None
        self.reload: Callable[[], object] | None = None
        self.reload_asked = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            handlers: dict[str, Callable[[int, Any], None]] = {
                "SIGINT": self._end,
                "SIGTERM": self._end,
                "SIGHUP": self._load_anew,  # not on Windows
            }
            for name, handler in handlers.items():
                if hasattr(signal, name):
                    number = getattr(signal, name)
                    self._before[number] = signal.signal(number, handler)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _end(self, number: int, _: Any) -> None:
        if self.server is None:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(0)
        if self.ended_by is None:
            self.ended_by = number
        elif number == signal.SIGINT:
            self.server.force_exit = True
        self.server.should_exit = True

    def _load_anew(self, *_: object) -> None:
        if self.reload is None:
            self.reload_asked = True
        else:
            self.reload()


async def _run(
    server: Any,
    service: Service,
    listener: socket.socket,
    place: ServerOptions,
    signals: SignalHandlers,
) -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[Any]] = set()  # the loop itself keeps no hold of them

    def begin_reload() -> None:
        task = loop.create_task(try_reload(service))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    signals.reload = partial(loop.call_soon_threadsafe, begin_reload)
    if signals.reload_asked:
        begin_reload()
    if place.watch_s > 0:
        tasks.add(loop.create_task(watch_folder(service, place.watch_s)))
    try:
        await server.serve(sockets=[listener])
    finally:
        signals.reload = None
        for task in tasks:
            task.cancel()


async def try_reload(service: Service) -> bool:
    """Load the run anew, and say in the log what came of it; False if there was no place for it."""
    try:
        if await service.reload():
            card = service.current.card
            print(f"Reloaded: model {card.model[:12]}. {card.sentence}", flush=True)
    except Refusal as refusal:  # a failure has been said
        return refusal.status != BUSY
    return True


async def watch_folder(service: Service, every_s: float) -> None:
    """Reload whenever a finished run has come into the folder."""
    seen = state_of(service.folder)
    while True:
        await asyncio.sleep(every_s)
        now = state_of(service.folder)
        if now != seen and is_finished(service.folder) and await try_reload(service):
            seen = now


def state_of(folder: Path) -> State:
    """What tells a new run from the old one; of a missing file None."""
    return tuple(_stamp(folder / name) for name in WATCHED)


def is_finished(folder: Path) -> bool:
    """Whether a run there has come to its end, or an ensemble lies there without one."""
    whole = (folder / SUMMARY).exists() or not (folder / HEADER).exists()
    return whole and (folder / RECORD).exists()


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
