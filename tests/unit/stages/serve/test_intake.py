from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import suppress

import pytest
from starlette.requests import Request

from trainwright.stages.serve import intake as module
from trainwright.stages.serve.intake import Intake
from trainwright.stages.serve.problems import ApiError

POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def hurried(monkeypatch):
    monkeypatch.setattr(module, "HEAD_S", 0.2)
    monkeypatch.setattr(module, "BODY_S", 0.2)


def exchange(server, *parts: bytes) -> bytes:
    """Everything that the server sends until it closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        for part in parts:
            connection.sendall(part)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    return received


@pytest.mark.parametrize("part", [b"", b"POST /v1/comp", POST])
def test_half_a_head_is_not_waited_for(serve, hurried, part):
    server, _ = serve()
    assert exchange(server, part).startswith(b"HTTP/1.1 408 ")


def test_half_a_body_is_not_waited_for(serve, hurried):
    server, service = serve()
    received = exchange(server, POST + b"Content-Length: 10\r\n\r\n{")
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"request_timeout"' in received
    assert service.metrics.requests.value(route="/v1/completions", status="408") == 1


def test_a_second_request_may_not_stay_half_either(serve, hurried):
    server, _ = serve()
    received = exchange(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /heal")
    assert received.startswith(b"HTTP/1.1 200 OK")


def trickle(connection, part: bytes) -> None:
    """Sends something every now and then, for eight seconds."""
    for _ in range(400):
        connection.sendall(part)
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /health HTTP/1.1\r\nContent-Length: 1000000\r\n", b"200"),
        (b"GET /health HTTP/1.1\r\nTransfer-Encoding: chunked\r\n", b"200"),
        (b"POST /nowhere HTTP/1.1\r\nContent-Length: 1000000\r\n", b"404"),
        (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 1000000\r\n", b"415"),
    ],
)
def test_a_body_that_nobody_reads_is_not_waited_for_either(serve, hurried, head, status):
    server, _ = serve()
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head + b"Host: localhost\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 " + status
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            trickle(connection, b"1\r\nx\r\n" if b"chunked" in head else b"x")


@pytest.mark.parametrize(
    "start", [b"X: ", b"", b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n0\r\n"]
)
def test_an_endless_head_or_trailer_is_refused(serve, start):
    server, _ = serve()
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + start)
        part = b"x" * 1000 if start == b"X: " else b"Name: value\r\n" * 80
        with suppress(BrokenPipeError, ConnectionResetError):  # it answers and closes before all of it is sent
            for _ in range(20):
                connection.sendall(part)
        assert connection.recv(12) == b"HTTP/1.1 400"


def test_an_answer_may_take_longer_than_its_request(serve, slow, monkeypatch):
    monkeypatch.setattr(module, "HEAD_S", 0.1)
    server, _ = serve()
    body = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 15}).encode()
    head = POST + f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    received = exchange(server, head, body)
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert json.loads(received.partition(b"\r\n\r\n")[2])["usage"]["completion_tokens"] == 15


def request_of(*chunks: bytes) -> Request:
    waiting = list(chunks)

    async def receive():
        return {"type": "http.request", "body": waiting.pop(0), "more_body": bool(waiting)}

    headers = [(b"content-type", b"application/json")]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive)


def test_chunks_are_one_body():
    assert asyncio.run(Intake().body(request_of(b"{", b"}", b""))) == b"{}"


def test_bodies_under_way_share_a_limit_and_give_it_back(monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES_UNDER_WAY", 10)
    intake = Intake()
    with pytest.raises(ApiError) as caught:
        asyncio.run(intake.body(request_of(b"123456", b"123456")))
    assert (caught.value.status, caught.value.code) == (503, "server_overloaded")
    assert asyncio.run(intake.body(request_of(b"1234567890"))) == b"1234567890"


def test_what_is_too_large_is_not_kept(monkeypatch):
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 4)
    with pytest.raises(ApiError) as caught:
        asyncio.run(Intake().body(request_of(b"1234", b"5")))
    assert (caught.value.status, caught.value.code) == (413, "request_too_large")
