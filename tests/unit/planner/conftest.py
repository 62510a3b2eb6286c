"""A workload, and the ideal machine of trainwright.testing as a device."""

from __future__ import annotations

import pytest

from fixtures.planned_models import SHAPES
from trainwright.planner.layout import Device
from trainwright.planner.memory import Process
from trainwright.planner.rates import Probed
from trainwright.spec.workload import Workload
from trainwright.testing.machine import fake_probes


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def shape(request):
    return request.param


@pytest.fixture
def workload():
    return Workload(
        sequence_tokens=512, batch_tokens=4096, steps=100, precision="bf16", optimizer="adamw", validation_tokens=8192,
        validations=2,
    )  # fmt: skip


@pytest.fixture
def device():
    process = Process(baseline_bytes=300 << 20, transient=1.5, waste=0.25)
    return Device(kind="cpu", rates=Probed(probes=fake_probes()), memory_available_bytes=16 << 30, process=process)
