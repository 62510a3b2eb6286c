from __future__ import annotations

import socket

import pytest

from trainwright.core.errors import MachineError
from trainwright.stages.serve.server import Server, listen


def test_a_port_in_use_is_one_line_with_what_to_do():
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(MachineError) as caught:
            listen("127.0.0.1", port)
    assert str(caught.value).startswith(f"127.0.0.1:{port}: the port is in use; stop the program that uses it")


def test_an_address_that_is_not_ours():
    with pytest.raises(MachineError, match=r"203\.0\.113\.1:0: cannot listen here .*--host"):
        listen("203.0.113.1", 0)
    with pytest.raises(MachineError, match="cannot listen here"):
        listen("not a host name", 0)


def test_the_port_is_free_after_the_end(make_service):
    with Server(make_service(), listen("127.0.0.1", 0)) as server:
        assert server.url == f"http://127.0.0.1:{server.port}"
        socket.create_connection(("127.0.0.1", server.port)).close()
    listen("127.0.0.1", server.port).close()


def test_ipv6_addresses_stand_in_brackets(make_service):
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        bound = listen("::1", 0)
    except MachineError:
        pytest.skip("no IPv6 loopback here")
    with bound:
        assert Server(make_service(), bound).url == f"http://[::1]:{bound.getsockname()[1]}"
