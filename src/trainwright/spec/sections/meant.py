"""What was meant by a value of ``train.exec`` that means something else, or nothing; loaded where such a key is set."""

from __future__ import annotations

from typing import Any, get_args

from trainwright.core.errors import RecipeError
from trainwright.core.units import parse_bytes
from trainwright.spec.sections.train import DeviceChoice

NO_DEVICES = {
    "gpu": "a GPU is called cuda (NVIDIA), rocm (AMD), xpu (Intel) or mps (Apple)",
    "hpu": "plans know hpu (Gaudi), and no training runs on it",
}
"""Names that others give to devices, or that plans know, and what is to be said of them."""
LEAST_BYTES = 1 << 20
"""Of memory for a process: less was meant in another unit."""
METRICS = "as min loss, of next tokens min bits_per_byte, of classes and rewards max accuracy, of embeddings max mrr"


def check(key: str, value: Any) -> None:
    """Refuses a value of ``train.exec`` that cannot be what was meant.

    Args:
        key: below ``train.exec``.
        value: as it was written.

    Raises:
        ValueError: says what may have been meant.
    """
    {"device": _device, "fit_memory": _memory, "best_by": _best, "checkpoint_to": _place}[key](value)


def _device(value: Any) -> None:
    if isinstance(value, str) and value in NO_DEVICES:
        raise ValueError(f"{NO_DEVICES[value]}; training knows {', '.join(get_args(DeviceChoice))}")


def _memory(value: Any) -> None:
    try:
        size_bytes = parse_bytes(value)
    except RecipeError:
        return  # what is no size is refused as such
    if 0 < size_bytes < LEAST_BYTES:
        unit = "GiB" if size_bytes < 4096 else "MiB"
        raise ValueError(f"{size_bytes:,} bytes hold no training: write the unit, {size_bytes}{unit}")


def _best(value: Any) -> None:
    if not isinstance(value, str):
        return
    direction, _, metric = value.partition(" ")
    if direction not in ("min", "max") or not metric or " " in metric:
        raise ValueError(f"not min or max and a metric of validation: {METRICS}")


def _place(value: Any) -> None:
    if isinstance(value, str) and not value.strip():
        raise ValueError("names no place: give a folder or a URL, or null for none")
