"""Callers that are let in: hosts, origins and keys.

A server without a key, on a loopback address, is still reached by any web page that its user opens: a page may send
simple requests across origins, and may give its own name the server's address (DNS rebinding). Browsers cannot forge
``Host`` and ``Origin``, so requests that name a foreign host in either are refused.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from trainwright.stages.serve.problems import ApiError

ANY_HOST = "*"


class AllowedHosts:
    """The host names that requests may be addressed to.

    Args:
        bound: the address that the server listens on.
        names: names beside it; ``*`` allows all.
    """

    def __init__(self, bound: str, names: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in names}
        self._bound = ipaddress.ip_address(bound.partition("%")[0])
        if not self._bound.is_loopback:
            self._names.add(socket.gethostname().lower())

    def __contains__(self, host: str) -> bool:
        """Returns whether ``host`` (a name or an address, without a port) is the server's.

        Where the server listens on all addresses, any address counts as its: rebinding needs a name.
        """
        name = host.lower().rstrip(".")
        if ANY_HOST in self._names or name in self._names or name == "localhost" or name.endswith(".localhost"):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or address == self._bound or self._bound.is_unspecified


class Guarded:
    """Refuses requests that are addressed to a foreign host, or sent by a web page of one."""

    def __init__(self, app: ASGIApp, hosts: AllowedHosts) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or refuses it."""
        problem = self._problem(scope) if scope["type"] == "http" else None
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await problem.response()(scope, receive, send)

    def _problem(self, scope: Scope) -> ApiError | None:
        headers = dict(scope["headers"])
        host = headers.get(b"host")
        if host is not None and _name(f"//{host.decode('latin-1')}") not in self._hosts:
            return _refusal("Host", host, fix="allow the name with serve.allowed_hosts or --allow-host")
        origin = headers.get(b"origin")
        if origin is not None and _name(origin.decode("latin-1")) not in self._hosts:
            return _refusal("Origin", origin, fix="allow its host with serve.allowed_hosts or --allow-host")
        return None


def _name(url: str) -> str:
    """Returns the host of a URL; empty where there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _refusal(header: str, value: bytes, *, fix: str) -> ApiError:
    shown = value[:80].decode("latin-1")
    return ApiError(403, f"{header} {shown!r} is not this server's; {fix}", code="foreign_host")


class Authenticated:
    """Asks for ``Authorization: Bearer <key>`` on everything but ``/health``, where a key is set."""

    def __init__(self, app: ASGIApp, api_key: str | None) -> None:
        self._app, self._expected = app, None if api_key is None else f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes the request on, or refuses it."""
        if scope["type"] == "http" and self._expected is not None and scope["path"] != "/health":
            authorization = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(authorization, self._expected):
                error = ApiError(401, "a valid API key is required: Authorization: Bearer KEY", code="invalid_api_key")
                await error.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)
