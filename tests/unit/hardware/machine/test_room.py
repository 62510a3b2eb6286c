"""Sizes are held against the memory of a device, or of this machine."""

from __future__ import annotations

import pytest

from fixtures.tiny_models import decoder
from trainwright.core.errors import MachineError
from trainwright.hardware.machine import room


def test_every_request_may_fill_its_context() -> None:
    spec = decoder("gpt2", context_tokens=64).spec
    each = 2 * spec.layers * 64 * spec.kv_heads * spec.head_size * 2
    room.check_cache(spec, places=7, element_bytes=2, memory_bytes=7 * each)
    with pytest.raises(MachineError, match=r"set it to 6 at most$"):
        room.check_cache(spec, places=7, element_bytes=2, memory_bytes=7 * each - 1)


def test_learned_positions_have_no_tables(monkeypatch) -> None:
    monkeypatch.setattr(room, "memory", lambda: (1, 1))
    room.check_rotary(decoder("gpt2").spec, where="here")
    with pytest.raises(MachineError, match=r"^here: a context of .* needs more memory than there is"):
        room.check_rotary(decoder("llama").spec, where="here")
