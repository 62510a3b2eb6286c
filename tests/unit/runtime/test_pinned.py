"""What crosses between host and device goes through pinned memory where the device's record says so, everywhere."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trainwright.model.memory import offload
from trainwright.stages.train.memory import host_optimizer
from trainwright.stages.train.memory.host_optimizer import HostOptimizers
from trainwright.stages.train.saving import pieces
from trainwright.stages.train.saving.pieces import Claim, HostCopy


def copied_for_a_checkpoint() -> None:
    claim = Claim("model", "w", "F32", (2,), (0,), (2,))
    HostCopy()._copied(claim, torch.zeros(2))  # noqa: SLF001  # what `take` calls for each piece


def updated_on_the_host() -> None:
    optimizers = object.__new__(HostOptimizers)
    parameter = nn.Parameter(torch.zeros(2))
    optimizers._pins = host_optimizer.pins("cpu")  # as its __init__ does
    optimizers._device_of, optimizers._names = {}, {parameter: "w"}
    optimizers._copied(parameter)


def saved_for_the_backward_pass() -> None:
    offload._Saved(torch.zeros(2).untyped_storage(), None)  # noqa: SLF001


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize(
    ("module", "copy"),
    [(pieces, copied_for_a_checkpoint), (host_optimizer, updated_on_the_host), (offload, saved_for_the_backward_pass)],
)
def test_one_rule_decides(module, copy, pinned, monkeypatch) -> None:
    asked, empty, zeros_like = list[bool](), torch.empty, torch.zeros_like

    def recorded(make):
        def made(*arguments, pin_memory=False, **options):
            asked.append(pin_memory)
            return make(*arguments, **options)

        return made

    monkeypatch.setattr(torch, "empty", recorded(empty))
    monkeypatch.setattr(torch, "zeros_like", recorded(zeros_like))
    monkeypatch.setattr(module, "pins", lambda torch_type: pinned and torch_type == "cpu")
    copy()
    assert asked
    assert set(asked) == {pinned}
