"""The measuring program itself, run as the doctor runs it, on a smaller set of shapes."""

import json
import subprocess
import sys

import pytest

from trainwright.core.records import from_json
from trainwright.hardware.machine.probes import Probes

SMALL = """
import sys
from pathlib import Path
from trainwright.stages.doctor import child
from trainwright.stages.doctor.effort import BlockShape, Effort, Shapes
stacks = tuple(BlockShape("llama", 64, 96, 1, 16, layers) for layers in (1, 2))
small = Effort(
    short_s=0.0, long_s=0.0, squares=Shapes((16,)), linears=Shapes(((32, 16, 16),)), blocks=Shapes(stacks[:1]),
    growth=Shapes(stacks), losses=Shapes(((32, 16, 64),)), attentions=Shapes(((1, 1, 8, 4),)),
    working_sets=Shapes((1200,)), updates=Shapes((1 << 18,)), matrices=Shapes(((8, 8),)), disk_bytes=1 << 20,
)
child.effort = lambda kind, *, thorough: small
child.main(1, Path(sys.argv[1]), thorough=False)
"""


@pytest.mark.slow
def test_it_prints_what_it_measures_and_then_the_record(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SMALL, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    *names, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert names[0] == "memory of a network"
    assert "the peak" in names
    probes = from_json(Probes, last, where="child")
    assert probes.threads == 1
    assert probes.baseline_bytes > 100 << 20
    assert 0 < probes.import_s < 100
    assert {probe.direction for probe in probes.matmul} == {"forward", "grad_input", "grad_weight"}
    assert [probe.model.layers for probe in probes.growth] == [1, 2]
