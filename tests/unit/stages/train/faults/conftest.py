"""A training in which one sequence of one batch makes a number that cannot be right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from trainwright.model import decoder
from trainwright.model.tasks.next_token import NextToken
from trainwright.model.tasks.windows import Windows

BAD_BATCH, BAD_ROW = 5, 2
Many = range | tuple[int, ...]


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Spoils row 2 of batch 5, or of other batches, whoever reads it: NaN in what the second block makes of it.

    With a number, the loss of the micro batch that it stands in is multiplied by that.
    """

    def add(value: float, *, batches: Many = (BAD_BATCH,), times: float = float("inf")) -> None:
        left = [times]
        batch, hidden, loss, forward = Windows.batch, NextToken.hidden, NextToken.loss, decoder.Block.forward
        here: list[torch.Tensor] = []

        def marked(self: Any, step: int, rows: range | None = None) -> Any:
            read = range(self.batch_sequences) if rows is None else rows
            mark = [value if step in batches and row == BAD_ROW else 0.0 for row in read]
            return batch(self, step, rows) | {"poison": torch.tensor(mark)}

        def remembered(self: Any, network: Any, inputs: Any) -> Any:
            here[:] = [inputs["poison"][:, None, None]]
            return hidden(self, network, inputs)

        def spoilt(self: Any, x: Any, *arguments: Any, **options: Any) -> Any:
            made = forward(self, x, *arguments, **options)
            if self.attention.layer != 1 or not here or not here[0].isnan().any() or not left[0]:
                return made
            left[0] -= 1
            return made + here[0]

        def leaping(self: Any, network: Any, made: Any, inputs: Any) -> Any:
            part, weight = loss(self, network, made, inputs)
            largest = float(inputs["poison"].abs().max()) if len(inputs["poison"]) else 0.0
            return part * largest if largest > 0 else part, weight

        monkeypatch.setattr(Windows, "batch", marked)
        monkeypatch.setattr(NextToken, "loss", leaping)
        monkeypatch.setattr(NextToken, "hidden", remembered)
        monkeypatch.setattr(decoder.Block, "forward", spoilt)

    return add
