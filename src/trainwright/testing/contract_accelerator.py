"""What every kind of device keeps, on a fake one: a newcomer's record inherits this class and names its kind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import get_args

import pytest
from torch.distributed.distributed_c10d import Backend

from trainwright.core.errors import MachineError
from trainwright.hardware.catalogue.accelerators import NEVER_RUN, accelerator
from trainwright.runtime import accelerators
from trainwright.runtime.device import choose
from trainwright.runtime.memory import measured_use, reset_peak
from trainwright.runtime.timing.clock import PhaseClock
from trainwright.runtime.timing.laps import Laps
from trainwright.spec.device import DeviceKind
from trainwright.spec.sections.train import DeviceChoice
from trainwright.testing.accelerator import FakeAccelerator


class AcceleratorContract:
    """The subclass sets ``kind``, the name of a file in ``catalog/accelerators``."""

    kind: DeviceChoice

    @pytest.fixture
    def fake(self) -> Iterator[FakeAccelerator]:
        with FakeAccelerator(self.kind) as fake:
            yield fake

    def test_a_recipe_and_a_plan_can_name_it(self) -> None:
        assert self.kind in get_args(DeviceChoice)
        assert self.kind in get_args(DeviceKind)

    def test_its_record_says_where_it_is_from_and_how_it_stands(self) -> None:
        record = accelerator(self.kind)
        assert record.source
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", record.recorded)
        assert record.standing == NEVER_RUN or record.standing.startswith("benchmarks/results/")
        assert "pip install 'trainwright[train" in record.install

    def test_torch_meets_over_the_same_library_where_it_knows_the_device(self) -> None:
        record = accelerator(self.kind)
        assert Backend.default_device_backend_map.get(record.torch_type, record.collectives) == record.collectives

    @pytest.mark.parametrize("by_name", [True, False])
    def test_it_is_found_and_described(self, fake: FakeAccelerator, *, by_name: bool) -> None:
        found = choose(self.kind if by_name else "auto")
        assert (found.kind, found.torch_type) == (self.kind, fake.record.torch_type)
        assert found.memory_bytes == fake.memory_bytes
        assert "Fake" in found.name

    def test_asked_for_in_vain_it_says_how_it_is_got(self) -> None:
        with pytest.raises(MachineError) as error:
            choose(self.kind)
        line = str(error.value)
        assert "\n" not in line
        assert "train.exec.device" in line
        assert "pip install 'trainwright[train" in line or "check" in line

    def test_phases_are_timed_without_waiting_for_it(self, fake: FakeAccelerator) -> None:
        clock = PhaseClock(fake.device)
        clock.start()
        with clock.phase("forward"):
            fake.compute(2.0)
        with clock.phase("backward"):
            fake.compute(3.0)
        assert fake.waits == 0
        times = clock.stop()
        assert fake.waited
        if fake.record.timed_events:
            assert (times.forward, times.backward) == (2.0, 3.0)

    def test_laps_are_its_own(self, fake: FakeAccelerator) -> None:
        laps = Laps(fake.device)
        for seconds in (1.0, 2.0):
            laps.mark()
            fake.compute(seconds)
        laps.mark()
        found = laps.seconds()
        assert len(found) == 2
        assert found == [1.0, 2.0] or not fake.record.timed_events

    def test_memory_is_what_its_allocator_counts(self, fake: FakeAccelerator) -> None:
        reset_peak(fake.device)
        fake.compute(1.0, peak_bytes=1000)
        use = measured_use(device=fake.device, weights=400, gradients=100, optimizer=0, activations=0, logits=0)
        assert use.total_bytes == (1000 if fake.record.allocator_statistics else 500)

    def test_deterministic_algorithms_have_their_environment(
        self, fake: FakeAccelerator, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in fake.record.deterministic:
            monkeypatch.delenv(name, raising=False)
        accelerators.prepare_deterministic(fake.device)
        assert {name: os.environ[name] for name in fake.record.deterministic} == dict(fake.record.deterministic)
