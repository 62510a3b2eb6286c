"""The intake of requests: limits on their size, their form and the time that they take to arrive."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from trainwright.stages.serve.problems import ApiError

MAX_BODY_BYTES = 8 << 20
MAX_BYTES_UNDER_WAY = 64 << 20
"""Limit of all bodies that are being received, together."""

HEAD_S = 10.0
"""Limit from the first byte of a request (or the connection) to the end of its headers, in seconds."""

BODY_S = 30.0
"""Limit from the end of the headers to the end of the body, in seconds."""


class Intake:
    """Receives bodies, within limits that all requests share."""

    def __init__(self) -> None:
        self._bytes_under_way = 0

    async def body(self, request: Request) -> bytes:
        """Returns the body of a request.

        Raises:
            ApiError: it is no JSON by its content type, too large, or too slow; or all requests are too much.
            ClientDisconnect: the client went away.
        """
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json":
            # Web pages of other origins may send any type but this one without asking first.
            shown = f"{content_type[:80]!r}" if content_type else "no content type"
            message = f"the content type must be application/json (seen {shown})"
            raise ApiError(415, message, code="unsupported_media_type")
        try:
            async with asyncio.timeout(BODY_S):
                return await self._receive(request)
        except TimeoutError:
            raise ApiError(408, f"the body did not arrive within {BODY_S:g} s", code="request_timeout") from None

    async def _receive(self, request: Request) -> bytes:
        chunks: list[bytes] = []
        size = kept = 0
        try:
            async for chunk in request.stream():
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    # The rest is received and dropped: few clients read an answer before they have sent all.
                    chunks.clear()
                    continue
                chunks.append(chunk)
                kept += len(chunk)
                self._bytes_under_way += len(chunk)
                if self._bytes_under_way > MAX_BYTES_UNDER_WAY:
                    message = "the requests under way are too large together; try again later"
                    raise ApiError(503, message, code="server_overloaded", kind="server_error")
        finally:
            self._bytes_under_way -= kept
        if size > MAX_BODY_BYTES:
            message = f"the body is larger than {MAX_BODY_BYTES} bytes"
            raise ApiError(413, message, code="request_too_large")
        return b"".join(chunks)


class TimedProtocol(H11Protocol):
    """Closes connections whose request does not come: nothing at all, half a head, or a body that no route reads.

    Of sizes h11 takes care: an unfinished head, line or trailer above 16 KiB is refused.
    """

    _waiting_for: type[h11.IDLE | h11.SEND_BODY] | None = None
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Starts to wait for a head."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Reads, and waits for the rest."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _watch(self) -> None:
        state = self.conn.their_state
        if state is self._waiting_for and self._timer is not None:
            return
        self._stop_waiting()
        if state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing():
            # A route that reads the body has its own limit, and answers when that is over.
            limit_s = HEAD_S if state is h11.IDLE else HEAD_S + BODY_S
            self._waiting_for, self._timer = state, self.loop.call_later(limit_s, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self.transport.is_closing():
            return
        if self.conn.our_state is h11.IDLE:
            answer = h11.Response(status_code=408, headers=[("connection", "close"), ("content-length", "0")])
            for event in (answer, h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
