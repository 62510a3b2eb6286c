"""The size that is known without torch is the one of the engine's cache."""

from __future__ import annotations

import pytest
import torch

from fixtures.tiny_models import decoder
from trainwright.core.errors import MachineError
from trainwright.model.cache import KVCache
from trainwright.model.generation.cache_size import PRECISIONS, check_cache
from trainwright.runtime.device import DTYPES
from trainwright.runtime.memory import LiveBytes
from trainwright.spec.parts.latent import LatentAttention

LATENT = {"kv_heads": 4, "latent": LatentAttention(query_rank=None, kv_rank=12, rope_size=4, value_size=7)}


@pytest.mark.parametrize(("family", "parts"), [("llama", {}), ("gpt2", {}), ("llama", LATENT)])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_as_many_places_fit_as_the_cache_has_bytes_for(family, parts, kind) -> None:
    spec = decoder(family, context_tokens=64, **parts).spec
    with LiveBytes() as live:
        cache = KVCache(spec, slots=3, max_tokens=64, dtype=DTYPES[PRECISIONS[kind]], device=torch.device("cpu"))
    assert cache.slots == 3
    check_cache(spec, places=3, kind=kind, memory_bytes=live.peak_bytes)
    with pytest.raises(MachineError, match="for 3 requests"):
        check_cache(spec, places=3, kind=kind, memory_bytes=live.peak_bytes - 1)
