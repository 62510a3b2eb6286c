from __future__ import annotations

import http.client
import ipaddress
import json
import socket

import pytest

from trainwright.stages.serve.callers import AllowedHosts

ALL_ADDRESSES = str(ipaddress.IPv4Address(0))
ASK = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 1, "temperature": 0})


@pytest.mark.parametrize(
    ("bound", "host", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.9.9.9", True),
        ("127.0.0.1", "::1", True),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "LOCALHOST.", True),
        ("127.0.0.1", "app.localhost", True),
        ("127.0.0.1", "evil.example", False),
        ("127.0.0.1", "127.0.0.1.evil.example", False),
        ("127.0.0.1", "localhost.evil.example", False),
        ("127.0.0.1", "10.0.0.1", False),
        ("127.0.0.1", "", False),
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "10.0.0.6", False),
        (ALL_ADDRESSES, "10.0.0.6", True),
        (ALL_ADDRESSES, "evil.example", False),
        ("::", "fd00::7", True),
        (ALL_ADDRESSES, socket.gethostname(), True),
    ],
)
def test_hosts(bound, host, allowed):
    assert (host in AllowedHosts(bound)) is allowed


def test_names_may_be_allowed():
    hosts = AllowedHosts(ALL_ADDRESSES, ["Models.Example."])
    assert "models.example" in hosts
    assert "other.example" not in hosts
    assert "other.example" in AllowedHosts("127.0.0.1", ["*"])


def ask(server, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", "/v1/completions", ASK, {"Content-Type": "application/json"} | names)
    answer = connection.getresponse()
    content = json.loads(answer.read())
    connection.close()
    return answer.status, content.get("error", {}).get("code")


def test_a_page_of_another_site_reaches_nothing(serve):
    server, service = serve()
    for headers in (
        {"Host": "evil.example"},
        {"Host": f"evil.example:{server.port}"},
        {"Host": "[not-an-address"},
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "null"},
    ):
        assert ask(server, **headers) == (403, "foreign_host"), headers
    assert service.metrics.prompt_tokens.value() == 0
    assert service.metrics.requests.value(route="/v1/completions", status="403") == 6


def test_what_browsers_send_without_asking_is_no_json(serve):
    server, service = serve()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
        assert ask(server, Content_Type=kind) == (415, "unsupported_media_type"), kind
    assert service.metrics.prompt_tokens.value() == 0


def test_pages_and_programs_of_this_machine_are_served(serve):
    server, _ = serve()
    for headers in (
        {},
        {"Host": f"localhost:{server.port}"},
        {"Host": "[::1]:80"},
        {"Origin": "http://localhost:3000"},
        {"Content_Type": "Application/JSON; charset=utf-8"},
    ):
        assert ask(server, **headers) == (200, None), headers


def test_allowed_names_are_served(serve):
    server, _ = serve(allowed_hosts=("models.example",))
    assert ask(server, Host="models.example", Origin="https://models.example") == (200, None)
    assert ask(server, Host="models.example", Origin="https://evil.example") == (403, "foreign_host")
