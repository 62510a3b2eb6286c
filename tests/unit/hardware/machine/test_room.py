"""Sizes are held against the memory of a device, or of this machine."""

from __future__ import annotations

import pytest

from fixtures.tiny_models import decoder
from trainwright.core.errors import MachineError
from trainwright.hardware.machine import room


def test_every_request_may_fill_its_context() -> None:
    room.check_places(2**30, places=7, memory_bytes=7 * 2**30)
    with pytest.raises(MachineError, match=r"^max_concurrent: .* for 7 requests .*\(seen 7 GiB, .*; set it to 6$"):
        room.check_places(2**30, places=7, memory_bytes=7 * 2**30 - 1)


def test_learned_positions_have_no_tables(monkeypatch) -> None:
    monkeypatch.setattr(room, "memory", lambda: (1, 1))
    room.check_rotary(decoder("gpt2").spec, where="here")
    with pytest.raises(MachineError, match=r"^here: a context of .* needs more memory than there is"):
        room.check_rotary(decoder("llama").spec, where="here")
