"""The size of the torch engine's key/value cache, which is known without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from trainwright.hardware.machine.room import check_places
from trainwright.planner.cost.serving_memory import CACHE_BYTES
from trainwright.spec.model import ModelSpec
from trainwright.spec.sections.train import DEVICES

PRECISIONS: Mapping[str, Literal["fp32", "bf16"]] = {kind: "fp32" if kind == "cpu" else "bf16" for kind in DEVICES}
"""What a device generates and caches in: a CPU decodes a lone sequence faster in fp32 (benchmarks/serve.py)."""


def check_cache(model: ModelSpec, *, places: int, kind: str, memory_bytes: int | None = None) -> None:
    """Refuses a cache that a device cannot hold.

    Args:
        model: whose keys and values are kept.
        places: requests at once.
        kind: of the device.
        memory_bytes: of the device; None: this machine's.

    Raises:
        MachineError: with the bytes needed and the bytes there, about ``max_concurrent``.
    """
    # This engine keeps the keys and values of all heads, also where they come from one latent.
    elements = model.layers * model.kv_heads * (model.score_size + model.value_size)
    place_bytes = int(CACHE_BYTES[PRECISIONS[kind]] * elements) * model.context_tokens
    check_places(place_bytes, places=places, memory_bytes=memory_bytes)
