"""What commands meet at: reached in time, or one line says why not."""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import replace

import pytest

from trainwright.core.errors import MachineError
from trainwright.core.place import Place
from trainwright.stages.train.ranks.several.meeting import Meeting


def test_a_host_that_has_no_address_is_named(place: Place) -> None:
    with pytest.raises(MachineError, match=r"no host of this name was found within 0.3 s; start the command of node 0"):
        Meeting(replace(place, rank=1, host="nobody.invalid"), 0.3)


def test_what_takes_the_connection_and_says_nothing_is_not_waited_for_longer(place: Place, capfd) -> None:
    """A port that is taken and never served, a web server that waits for a request: torch alone waits without end."""
    with socket.socket() as stream:
        stream.bind((place.host, place.port))
        stream.listen()
        with pytest.raises(MachineError, match="something answered here, but no command of node 0 within 1 s"):
            Meeting(replace(place, rank=1), 1.0)
        assert capfd.readouterr().err == ""
    for left in [thread for thread in threading.enumerate() if thread.name == "meeting"]:
        left.join(60)  # what torch writes now is of no other test


def test_what_answers_and_is_no_meeting_place_is_named_in_one_line(place: Place, capfd) -> None:
    """Something else on that port: it accepts and says what torch does not expect."""
    with socket.socket() as stream:
        stream.bind((place.host, place.port))
        stream.listen()

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    guest, _ = stream.accept()
                    guest.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9)
                    guest.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(MachineError, match="something answered here, but no command of node 0 within 1 s"):
            Meeting(replace(place, rank=1), 1.0)
    assert "TCPStore" not in capfd.readouterr().err


def test_a_port_in_use_is_named(place: Place) -> None:
    with socket.socket() as stream:
        stream.bind(("127.0.0.1", place.port))
        stream.listen()
        with pytest.raises(MachineError, match="cannot meet here .*seen another process listens at this port.*another"):
            Meeting(place, 1.0)


@pytest.mark.parametrize(
    ("host", "why"),
    [("192.0.2.1", "this host does not have this address"), ("nobody.invalid", "no host of this name was found")],
)
def test_the_first_command_at_an_address_of_another_host_is_told_so(place: Place, capfd, host: str, why: str) -> None:
    """192.0.2.0/24 is kept for documentation (RFC 5737): nobody has it."""
    with pytest.raises(MachineError, match=rf"cannot meet here \(seen {why}, expected an address of the host"):
        Meeting(replace(place, host=host), 0.5)
    assert "TCPStore" not in capfd.readouterr().err


def test_two_commands_with_one_number_are_told_apart(place: Place, monkeypatch) -> None:
    first = Meeting(replace(place, commands=2), 5.0)
    Meeting(replace(place, commands=2), 5.0)  # the same process may come again
    monkeypatch.setattr("os.getpid", lambda: 1)
    with pytest.raises(MachineError, match=r"another command is node 0 here .*seen process \d+ of "):
        Meeting(replace(first.place, served=True), 5.0)
