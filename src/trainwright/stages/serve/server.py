"""The HTTP server: in the foreground until Ctrl-C, or in a thread for as long as a ``with`` block lasts."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import uvicorn

from trainwright.core.errors import MachineError
from trainwright.stages.serve.app import build_app
from trainwright.stages.serve.callers import AllowedHosts
from trainwright.stages.serve.intake import TimedProtocol
from trainwright.stages.serve.service import Service

GRACE_S = 10.0
"""Time that unfinished answers may take when the server is told to stop; then they are ended with an error."""


class _Uvicorn(uvicorn.Server):
    """Ends what is still being generated some time after it was told to stop."""

    def __init__(self, config: uvicorn.Config, service: Service, grace_s: float) -> None:
        super().__init__(config)
        self._service, self._grace_s = service, grace_s

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop taking requests and wait for those under way."""
        timer = asyncio.get_running_loop().call_later(self._grace_s, self._service.worker.stop)
        await super().shutdown(sockets)
        timer.cancel()


class Server:
    """Answers on a socket that listens already.

    Args:
        service: what answers.
        bound: of ``listen``; closed when the server ends.
        allowed_hosts: names that requests may be addressed to, beside the bound address; ``*`` allows all.
        grace_s: how long unfinished answers may go on at shutdown.
    """

    def __init__(
        self,
        service: Service,
        bound: socket.socket,
        *,
        allowed_hosts: Iterable[str] = (),
        grace_s: float = GRACE_S,
    ) -> None:
        self._socket = bound
        host, self.port = bound.getsockname()[:2]
        self.url = f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"
        config = uvicorn.Config(
            build_app(service, AllowedHosts(host, allowed_hosts)),
            http=TimedProtocol,
            log_level="warning",
            access_log=False,
            lifespan="on",
            ws="none",
            timeout_graceful_shutdown=int(grace_s) + 5,
        )
        self._uvicorn = _Uvicorn(config, service, grace_s)
        self._thread = threading.Thread(target=self.run, name="trainwright-http", daemon=True)

    def run(self) -> None:
        """Serve in this thread until a signal asks to stop.

        Raises:
            KeyboardInterrupt: after a clean shutdown by Ctrl-C.
        """
        try:
            self._uvicorn.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def __enter__(self) -> Self:
        """Serve in a thread of its own."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def ask_to_stop(self) -> None:
        """Begin to stop and return at once: no new requests, and unfinished answers get their grace."""
        self._uvicorn.should_exit = True

    def stop(self) -> None:
        """Stop, and wait for the end of the thread."""
        self.ask_to_stop()
        self._thread.join()


def listen(host: str, port: int) -> socket.socket:
    """Returns a bound socket.

    Raises:
        MachineError: the port is in use, or the address is not this machine's.
    """
    where = f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        fix = "give an address of this machine with --host, such as 127.0.0.1"
        raise MachineError("cannot listen here", where=where, seen=error.strerror, fix=fix) from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        # Now, and not when the server starts: two servers may bind one port until one of them listens.
        bound.listen(128)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            fix = "stop the program that uses it, or choose another port with --port (0 takes a free one)"
            raise MachineError("the port is in use", where=where, fix=fix) from error
        fix = "choose another address with --host, or a port above 1023 with --port"
        raise MachineError("cannot listen here", where=where, seen=error.strerror, fix=fix) from error
    return bound
