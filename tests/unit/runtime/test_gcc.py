"""What GCC makes of compiled code on a processor: gradients of rotated keys in bf16 are those of uncompiled code."""

from __future__ import annotations

import pytest
import torch
from torch._inductor import cpp_builder

from trainwright.runtime.gcc import FLAGS, OF_LINES, OF_LOOPS, keep_exact


def test_gcc_is_told_once_and_other_compilers_never(monkeypatch) -> None:
    monkeypatch.setattr(cpp_builder, FLAGS, lambda compiler: ([OF_LOOPS] if compiler == "g++" else ["O3"], ["a"]))
    keep_exact()
    keep_exact()
    flags = getattr(cpp_builder, FLAGS)
    assert flags("g++") == ([OF_LOOPS, OF_LINES], ["a"])
    assert flags("clang++") == (["O3"], ["a"])


def turned_back(gradient: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """What the backward pass of rotary positions does with the gradient of keys, which comes transposed."""
    first, second = gradient.transpose(-1, -2).chunk(2, dim=-1)
    return torch.cat((first * cosines + second * sines, second * cosines - first * sines), dim=-1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")  # torch's own code has it
def test_tiles_of_transposed_bf16_are_right() -> None:
    keep_exact()
    torch.manual_seed(0)
    gradient, angles = torch.randn(8, 64, 256).bfloat16(), torch.randn(256, 32)
    cosines, sines = angles.cos().bfloat16(), angles.sin().bfloat16()
    found = torch.compile(turned_back)(gradient, cosines, sines).double()
    exact = turned_back(gradient.double(), cosines.double(), sines.double())
    assert (found - exact).abs().max() < 0.05
