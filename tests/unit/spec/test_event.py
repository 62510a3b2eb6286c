"""Events are values."""

from __future__ import annotations

import dataclasses

import pytest

from trainwright.spec.event import Event


def test_an_event_cannot_change() -> None:
    event = Event(run="r", t_s=1.0, kind="metric", name="train/loss", value=2.0)
    assert event == dataclasses.replace(event)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.value = 3.0
