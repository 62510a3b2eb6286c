"""Plans to explain: one of each kind of layout, network and software."""

from __future__ import annotations

import pytest

from trainwright.hardware.catalogue.models import model
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.layout import parse_layout
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import scenario_of

QUESTIONS = {
    "sharded": ("llama3-70b", "64x8xh100-sxm", "auto", {"price": 2.0}),
    "pipelined": ("llama3-70b", "64x8xh100-sxm", "tp=8,pp=8", {"stack": "megatron-core"}),
    "small": ("gpt2", "8xa100-80gb", "auto", {}),
    "mixture": ("mixtral-8x7b", "8x8xh100-sxm", "auto", {}),
    "both ways": (
        "deepseek-v3",
        "64x8xh800-sxm",
        "pp=16,ep=32,recompute=full,schedule=dualpipe",
        {"stack": "hai-llm", "precision": "fp8", "batch_tokens": 4096 * 3840, "sequence_tokens": 4096},
    ),
    "adapters": ("llama3-8b", "8xa100-80gb", "auto", {"method": "qlora"}),
    "ours": ("llama3-8b", "8xa100-80gb", "auto", {"stack": "trainwright", "optimizer": "muon"}),
    "offloaded": ("llama3-8b", "8xa100-80gb", "offload=all", {"stack": "deepspeed"}),
    "streamed": ("llama3-8b", "8xa100-80gb", "offload=all-nvme", {"stack": "deepspeed"}),
    "paged": (
        "llama3-8b",
        "rtx-4090",
        "micro_batch=2",
        {
            "method": "full",
            "states": "pure",
            "moments": "int8",
            "batch_tokens": 4096,
            **dict.fromkeys(("paged_moments", "update_in_backward", "activation_offload"), True),
        },
    ),
    "padded": ("llama3-8b", "4xa100-80gb", "micro_batch=2", {"method": "lora", "packing": "off"}),
    "held": ("gpt3-175b", "128x8xa100-80gb", "tp=8,pp=8,zero_stage=1", {"stack": "megatron-deepspeed"}),
    "vision": ("vit-b-16", "8xa100-80gb", "auto", {}),
}


def plan_of(case):
    name, on, layout, more = QUESTIONS[case]
    return planned(scenario_of(Question(model=model(name), on=on, layout=parse_layout(layout), **more)))


@pytest.fixture(scope="package", params=QUESTIONS)
def made(request):
    return plan_of(request.param)


@pytest.fixture(scope="package")
def both_ways():
    return plan_of("both ways")
