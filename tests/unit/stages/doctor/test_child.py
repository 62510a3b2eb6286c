"""The measuring program itself, run as the doctor runs it, on a smaller set of shapes."""

import json
import subprocess
import sys

import pytest

from trainwright.core.records import from_json
from trainwright.hardware.probes import Probes

SMALL = """
import sys
from pathlib import Path
from trainwright.runtime import probes
from trainwright.stages.doctor import child, reference
from trainwright.stages.doctor.reference import Shape
tiny = [Shape(family="llama", width=64, ffn_width=96, sequences=1, sequence_tokens=16, layers=n) for n in (1, 2)]
reference.CPU_SHAPES = (tiny[0], tiny[0])
reference.CPU_GROWTH = tuple(tiny)
reference.LOSSES = ((32, 16, 64),)
probes.CPU_LINEARS = ((32, 16, 16),)
probes.CPU_WORKING_SETS = (1200,)
probes.ATTENTIONS = ((1, 1, 8, 4),)
probes.MUON_MATRICES = ((8, 8),)
child.UPDATE_PARAMETERS = (1 << 18,)
child.main(1, Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_it_prints_what_it_measures_and_then_the_record(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SMALL, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    *said, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert said[0] == "memory of a network"
    assert "the disk" in said
    probes = from_json(Probes, last, where="child")
    assert probes.threads == 1
    assert probes.baseline_bytes > 100 << 20
    assert 0 < probes.import_s < 100
    assert {probe.direction for probe in probes.matmul} == {"forward", "grad_input", "grad_weight"}
    assert [probe.model.layers for probe in probes.growth] == [1, 2]
