from __future__ import annotations

from dataclasses import replace

import pytest

from trainwright.model.experts.refusals import refusals
from trainwright.spec.parts.experts import Experts
from trainwright.spec.parts.latent import LatentAttention
from trainwright.spec.workload import DEFAULT_KERNELS, KernelChoice, ParallelPlan

EXPERTS = {"experts": Experts(count=4, active=2, ffn_width=8)}
LATENT = {"latent": LatentAttention(query_rank=None, kv_rank=8, rope_size=4, value_size=8)}
SINKS = {"sinks": True}


def reasons(tiny, parts, *, layout=None, **how):
    usual = {"precision": "bf16", "optimizer": "adamw", "moments": None, "frozen": None, "kernels": DEFAULT_KERNELS}
    return refusals(replace(tiny.spec("llama"), **parts), ParallelPlan(**(layout or {})), **(usual | how))


@pytest.mark.parametrize(
    ("parts", "layout", "how", "words"),
    [
        (EXPERTS, {"tp": 2}, {}, "tp=2: a model with experts"),
        (EXPERTS, {"cp": 2}, {}, "cp=2: a model with experts"),
        (EXPERTS, {"dp_shard": 6, "ep": 4}, {}, "ep=4: its ranks are neighbours along dp_shard=6; set ep=2"),
        (LATENT, {"tp": 2}, {}, "tp=2: a model with latent attention"),
        (SINKS, {"cp": 2}, {}, "cp=2: a model with sinks"),
        (EXPERTS, {}, {"precision": "fp8"}, "precision=fp8"),
        (EXPERTS, {}, {"optimizer": "muon"}, "train.optimizer.name=muon"),
        (EXPERTS, {}, {"optimizer": "adafactor"}, "train.optimizer.name=adafactor"),
        (EXPERTS, {}, {"moments": "int8"}, "train.optimizer.moments=int8"),
        (EXPERTS, {}, {"frozen": "nf4"}, "train.method.frozen=nf4: experts are stacks"),
        (EXPERTS, {}, {"kernels": KernelChoice(cuda_graphs=True)}, "cuda_graphs"),
        (LATENT, {}, {"kernels": KernelChoice(attention="flex")}, "attention=flex: latent"),
        (SINKS, {}, {"kernels": KernelChoice(attention="fa3")}, "attention=fa3: it gives no place to sinks"),
    ],
)
def test_what_is_not_right_is_refused_with_what_is(tiny, parts, layout, how, words):
    (reason,) = reasons(tiny, parts, layout=layout, **how)
    assert reason.startswith(words) and "; set " in reason


@pytest.mark.parametrize("parts", [EXPERTS, LATENT, SINKS, {}])
@pytest.mark.parametrize("layout", [{"dp_replicate": 2}, {"dp_shard": 2}, {"pp": 2}, {"dp_shard": 2, "ep": 2}])
def test_what_is_right_is_not_refused(tiny, parts, layout):
    assert reasons(tiny, parts, layout=layout) == ()
