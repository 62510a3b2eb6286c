from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.planned_models import LLAMA
from trainwright.planner.forecast.memory.per_parameter import (
    average_bytes,
    has_half_gradients,
    parameter_bytes,
    updates_by_tensor,
)
from trainwright.spec.stack import StackMemory
from trainwright.spec.workload import Workload

WORK = Workload(
    sequence_tokens=1024, batch_tokens=1 << 20, steps=1, precision="bf16", optimizer="adamw", states="mixed"
)


def test_mixed_states_are_sixteen_bytes_and_two_for_gradients_in_fp32():
    """Rajbhandari et al., 2020, section 3.1: 2 + 2 + 12; Megatron accumulates bf16's gradients in fp32."""
    each = parameter_bytes(LLAMA, WORK, StackMemory(update_copies=0.0))
    assert (each.weight, each.gradient, each.optimizer, each.update) == (2.0, 4.0, 12.0, 0.0)


@pytest.mark.parametrize(
    ("asked", "expected"), [({}, False), ({"moments": "bf16"}, False), ({"moments": "int8"}, True)]
)
def test_8_bit_optimizers_go_tensor_by_tensor(asked, expected):
    assert updates_by_tensor(replace(WORK, **asked)) is expected


def test_gradients_are_halved_where_all_states_are():
    assert has_half_gradients(replace(WORK, states="pure")) and not has_half_gradients(WORK)


def test_an_average_of_the_weights_is_kept_in_fp32():
    assert (average_bytes(WORK), average_bytes(replace(WORK, average_every=10))) == (0.0, 4.0)
