"""The key/value cache: what earlier tokens of each sequence left behind for later ones.

Shape legend: ``slots`` (sequences that can be held), ``batch`` (sequences of this call), ``seq`` (new tokens),
``keys`` (tokens attended to), ``kv_heads``, ``head``.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trainwright.spec.model import ModelSpec


class KVCache:
    """Keys and values of every layer for ``slots`` sequences of up to ``max_tokens`` tokens.

    A call selects slots and positions first, then every layer appends in turn::

        cache.select(slots, positions)        # once per forward pass
        key, value = cache.append(layer, key, value)
        mask = cache.mask()

    Rows of a batch may stand at different positions: a slot is a request, and requests come and go.
    """

    def __init__(
        self, spec: ModelSpec, *, slots: int, max_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (spec.layers, slots, spec.kv_heads, max_tokens, spec.head_size)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.max_tokens = max_tokens
        self._slots = torch.empty(0, dtype=torch.long)
        self._positions = torch.empty(0, 0, dtype=torch.long)
        self._visible = 0

    @staticmethod
    def bytes_needed(spec: ModelSpec, *, slots: int, max_tokens: int, element_bytes: int) -> int:
        """Bytes that such a cache takes."""
        return 2 * spec.layers * slots * spec.kv_heads * max_tokens * spec.head_size * element_bytes

    def select(self, slots: Int[Tensor, " batch"], positions: Int[Tensor, "batch seq"]) -> None:
        """Say which slots the next forward pass extends and where its tokens stand."""
        self._slots, self._positions = slots, positions
        self._visible = int(positions.max()) + 1

    def mask(self) -> Bool[Tensor, "batch one seq keys"]:
        """True where a selected token may look: at positions up to its own."""
        keys = torch.arange(self._visible, device=self._positions.device)
        return (keys <= self._positions[:, :, None]).unsqueeze(1)

    def append(
        self, layer: int, key: Float[Tensor, "batch kv_heads seq head"], value: Float[Tensor, "batch kv_heads seq head"]
    ) -> tuple[Float[Tensor, "batch kv_heads keys head"], Float[Tensor, "batch kv_heads keys head"]]:
        """Store the new tokens of one layer and return all that the selected slots hold, up to the longest."""
        rows, columns = self._slots[:, None], self._positions
        self.keys[layer][rows, :, columns] = key.transpose(1, 2).to(self.keys.dtype)
        self.values[layer][rows, :, columns] = value.transpose(1, 2).to(self.values.dtype)
        held_keys = self.keys[layer][self._slots, :, : self._visible]
        held_values = self.values[layer][self._slots, :, : self._visible]
        return held_keys.to(key.dtype), held_values.to(value.dtype)
