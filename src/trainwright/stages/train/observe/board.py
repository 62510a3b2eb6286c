"""TensorBoard, beside the events of a training that asks for it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from trainwright.artifact.events import Events


class Board(Protocol):
    """The part of ``torch.utils.tensorboard.SummaryWriter`` that is used here."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Record one number."""

    def close(self) -> None:
        """Write out what is buffered."""


def open_board(directory: Path, *, first_step: int, events: Events) -> Board | None:
    """Returns a TensorBoard writer, or None where it is not installed (said once, with what helps)."""
    if find_spec("tensorboard") is None:
        events.message(
            "no TensorBoard files: run: pip install 'trainwright[report]' (or set train.exec.tensorboard=false)"
        )
        return None
    board: Board = import_module("torch.utils.tensorboard").SummaryWriter(str(directory), purge_step=first_step)
    return board
