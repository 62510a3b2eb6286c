from __future__ import annotations

import time

import pytest
import torch

from trainwright.runtime.timing.laps import Laps


def test_laps_are_the_time_between_marks() -> None:
    laps, begin = Laps(torch.device("cpu")), time.perf_counter()
    assert laps.seconds() == []
    laps.mark()
    assert laps.seconds() == [], "one mark is no lap"
    time.sleep(0.02)
    laps.mark()
    time.sleep(0.01)
    laps.mark()
    first, second = laps.seconds()
    assert first >= 0.02 and second >= 0.01
    assert first + second <= time.perf_counter() - begin


@pytest.mark.cuda
def test_laps_of_a_device_are_its_own() -> None:
    device = torch.device("cuda")
    laps, x = Laps(device), torch.ones(4096, 4096, device=device)
    for _ in range(3):
        laps.mark()
        for _ in range(20):
            x = x @ x / 4096
    laps.mark()
    assert len(laps.seconds()) == 3 and min(laps.seconds()) > 0
