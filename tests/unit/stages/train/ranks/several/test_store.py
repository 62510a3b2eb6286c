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
        with pytest.raises(MachineError, match="cannot meet here .*is the port free"):
            Meeting(place, 1.0)
