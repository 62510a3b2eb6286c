"""A machine that was never measured: probes computed from one rate for each kind of work.

On it every time can be worked out by hand, so that a planner that carries measurements over to other shapes can be held
to an answer.
"""

from __future__ import annotations

from dataclasses import replace

from trainwright.hardware.machine.facts import MachineFacts
from trainwright.hardware.machine.probes import (
    AttentionProbe,
    BandwidthProbe,
    BlockProbe,
    DiskProbe,
    GrowthProbe,
    LossProbe,
    MatmulProbe,
    MuonProbe,
    PeakProbe,
    Probes,
    Timing,
    UpdateProbe,
)
from trainwright.hardware.machine.record import Machine
from trainwright.planner.counts.flops import count_flops, muon_flops
from trainwright.planner.counts.parameters import block_matrix_parameters, total_parameters
from trainwright.planner.counts.saved.activations import block_bytes, saved_bytes
from trainwright.planner.counts.saved.micro_batch import MicroBatch
from trainwright.planner.rates.probed import DIRECTIONS, moved_bytes, shapes_of
from trainwright.spec.model import ModelSpec
from trainwright.spec.sections.model import ModelSection
from trainwright.spec.workload import Precision

FLOPS_PER_S: dict[Precision, float] = {"fp32": 1e11, "bf16": 4e11}
BYTES_PER_S = 1e10
TRANSIENT, WASTE = 1.5, 0.25
BASELINE_BYTES = 300 << 20


def fake_facts(*, memory_bytes: int = 16 << 30) -> MachineFacts:
    """Returns a quiet machine with four cores and a compiler."""
    return MachineFacts(
        system="Linux",
        release="6.1",
        architecture="x86_64",
        bits=64,
        python="3.12.1",
        torch="2.13.0+cpu",
        cpu="Ideal CPU",
        cores=4,
        logical_cores=8,
        cpu_features=("avx2", "avx512f"),
        cpu_busy=0.0,
        memory_bytes=memory_bytes,
        memory_available_bytes=memory_bytes,
        disk_path="/",
        disk_free_bytes=100 << 30,
        compiler="/usr/bin/c++",
        python_headers=True,
    )


def fake_model(*, family: str = "llama", width: int = 256, layers: int = 2, vocabulary: int = 512) -> ModelSpec:
    """Returns a small network of a family, with heads of 64."""
    section = ModelSection(family=family, layers=layers, width=width, heads=width // 64, ffn_width=3 * width)
    return section.spec(vocabulary=vocabulary)


def fake_machine(*, memory_bytes: int = 16 << 30) -> Machine:
    """Returns the record that a doctor would write on it."""
    return Machine(facts=fake_facts(memory_bytes=memory_bytes), probes=fake_probes())


def fake_probes() -> Probes:
    """Measurements of the ideal machine."""
    return Probes(
        device_kind="cpu",
        device_name="Ideal CPU",
        threads=4,
        thorough=True,
        measured_unix_s=1.8e9,
        cpu_busy=0.0,
        peak=tuple(
            PeakProbe(dtype=dtype, side=1024, timing=_exactly(2 * 1024**3 / rate))
            for dtype, rate in FLOPS_PER_S.items()
        ),
        matmul=tuple(
            MatmulProbe(
                dtype=dtype, direction=direction, tokens=m, inputs=k, outputs=n, timing=_exactly(2 * m * k * n / rate)
            )
            for dtype, rate in FLOPS_PER_S.items()
            for direction in DIRECTIONS
            for m, k, n in ((1024, 256, 256), (2048, 512, 2048))
        ),
        bandwidth=tuple(
            BandwidthProbe(working_set_bytes=size, timing=_exactly(size / BYTES_PER_S)) for size in (1 << 20, 1 << 28)
        ),
        attention=tuple(_attention(dtype, tokens) for dtype in FLOPS_PER_S for tokens in (256, 1024)),
        loss=tuple(
            LossProbe(
                dtype=dtype,
                tokens=1024,
                width=256,
                vocabulary=4096,
                timing=_exactly(6 * 1024 * 256 * 4096 / rate + 16 * 1024 * 4096 / BYTES_PER_S),
            )
            for dtype, rate in FLOPS_PER_S.items()
        ),
        update=(UpdateProbe(parameters=1 << 20, timing=_exactly((28 << 20) / BYTES_PER_S)),),
        muon=(MuonProbe(rows=256, columns=256, timing=_exactly(muon_flops(256, 256) / FLOPS_PER_S["fp32"])),),
        blocks=tuple(_block(dtype, family) for dtype in FLOPS_PER_S for family in ("llama", "gpt2")),
        growth=tuple(_growth(layers) for layers in (2, 8)),
        disk=DiskProbe(size_bytes=1 << 26, write_s=0.1, read_s=0.05, digest_s=0.05),
        launch_s=1e-6,
        baseline_bytes=BASELINE_BYTES,
        import_s=2.0,
        probe_s=10.0,
    )


def _exactly(seconds: float) -> Timing:
    return Timing(median_s=seconds, low_s=seconds, high_s=seconds, fastest_s=seconds, repetitions=5)


def _attention(dtype: Precision, tokens: int) -> AttentionProbe:
    flops = 4.0 * 2 * 4 * tokens**2 * 64
    return AttentionProbe(
        dtype=dtype,
        sequences=2,
        heads=4,
        tokens=tokens,
        head_size=64,
        forward=_exactly(flops / FLOPS_PER_S[dtype]),
        backward=_exactly(2 * flops / FLOPS_PER_S[dtype]),
    )


def _block(dtype: Precision, family: str) -> BlockProbe:
    model = fake_model(family=family)
    flops = count_flops(model, sequences=4, sequence_tokens=512)
    compute_s = (flops.linear + flops.attention) / FLOPS_PER_S[dtype]
    casts = 0 if dtype == "fp32" else 6 * block_matrix_parameters(model)
    probe = BlockProbe(
        model=model, dtype=dtype, sequences=4, sequence_tokens=512, forward=_exactly(1.0), backward=_exactly(1.0)
    )
    moved = moved_bytes(shapes_of(probe))
    return replace(
        probe,
        forward=_exactly(compute_s + (moved + casts) / BYTES_PER_S),
        backward=_exactly(2 * compute_s + (2 * moved + casts) / BYTES_PER_S),
    )


def _growth(layers: int) -> GrowthProbe:
    model = fake_model(layers=layers)
    batch = MicroBatch(sequences=4, sequence_tokens=512, dtype="bf16", device_kind="cpu")
    grown = (
        4 * total_parameters(model) + (1 + WASTE) * saved_bytes(model, batch) + TRANSIENT * block_bytes(model, batch)
    )
    return GrowthProbe(model=model, dtype="bf16", sequences=4, sequence_tokens=512, grown_bytes=round(grown))
