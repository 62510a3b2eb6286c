"""The key/value cache: keys and values of the earlier tokens of each sequence.

Shape legend: ``slots`` (sequences that have a place), ``batch`` (sequences of this call), ``seq`` (new tokens),
``keys`` (tokens attended to), ``kv_heads``, ``head``, ``value`` (elements of one head's value).
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainwright.spec.model import ModelSpec

Cached = Float[Tensor, "batch kv_heads keys head"]
New = Float[Tensor, "batch kv_heads seq head"]
NewValues = Float[Tensor, "batch kv_heads seq value"]
CachedValues = Float[Tensor, "batch kv_heads keys value"]


class KVCache:
    """Keys and values of every layer for ``slots`` sequences of up to ``max_tokens`` tokens.

    A call selects slots and positions first, then every layer appends in turn::

        cache.select(slots, positions)        # once per forward pass
        key, value = cache.append(layer, key, value)
        mask = cache.mask()

    Rows of a batch may stand at different positions: a slot is a request, and requests come and go. Tokens lie in the
    order (slot, position), so that new ones are written by one row-wise copy, and neighbouring slots are read in place.
    """

    def __init__(
        self, spec: ModelSpec, *, slots: int, max_tokens: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        # Latent attention's keys have more elements than its values.
        shapes = [(slots, max_tokens, spec.kv_heads, size) for size in (spec.score_size, spec.value_size)]
        made = ([torch.zeros(shape, dtype=dtype, device=device) for _ in range(spec.layers)] for shape in shapes)
        self._keys, self._values = made
        self.slots, self.max_tokens = slots, max_tokens
        self._dtype = dtype
        self._rows: Tensor | slice = slice(0, 0)
        self._targets = torch.empty(0, dtype=torch.long)
        self._positions = torch.empty(0, 0, dtype=torch.long)
        self._visible = 0
        self._plain_causal = False

    def select(self, slots: Int[Tensor, " batch"], positions: Int[Tensor, "batch seq"]) -> None:
        """Select the slots and token positions of the next forward pass; the positions of a row never fall."""
        first, count = int(slots[0]), slots.shape[0]
        neighbours = torch.equal(slots, torch.arange(first, first + count, device=slots.device))
        self._rows = slice(first, first + count) if neighbours else slots
        self._targets = (slots[:, None] * self.max_tokens + positions).flatten()
        self._positions = positions
        self._visible = int(positions[:, -1].max()) + 1
        from_start = torch.arange(positions.shape[1], device=positions.device)
        self._plain_causal = positions.shape[1] == self._visible and bool((positions == from_start).all())

    def mask(self, window: int | None = None) -> Float[Tensor, "batch 1 seq keys"] | None:
        """0 where a selected token may look (at positions up to its own) and -inf elsewhere, to be added to scores.

        With a window a token looks at so many positions, its own the last. None where no mask is needed: one sequence's
        next token sees all earlier ones, and sequences that start at position 0 see each other's order, which is plain
        causal attention; with a window, as long as it holds all of them.
        """
        batch, seq = self._positions.shape
        near = self._visible if window is None else min(window, self._visible)
        if near == self._visible and (self._plain_causal or (seq == 1 and batch == 1)):
            return None
        keys = torch.arange(self._visible, device=self._positions.device)
        hidden = (keys > self._positions[:, :, None]).unsqueeze(1)
        if near < self._visible:
            hidden |= (keys <= self._positions[:, :, None] - near).unsqueeze(1)
        return torch.zeros(hidden.shape, dtype=self._dtype, device=hidden.device).masked_fill_(hidden, float("-inf"))

    @property
    def visible_tokens(self) -> int:
        """Returns the positions that attention of this pass sees: up to the largest that was selected."""
        return self._visible

    def append(self, layer: int, key: New, value: NewValues) -> tuple[Cached, CachedValues]:
        """Store the new tokens of one layer and return all of the selected slots, up to the longest."""
        return self._extend(self._keys[layer], key), self._extend(self._values[layer], value)

    def _extend(self, store: Tensor, new: New) -> Cached:
        rows = new.transpose(1, 2).flatten(2).flatten(0, 1).to(self._dtype)
        store.view(-1, rows.shape[-1]).index_copy_(0, self._targets, rows)
        return store[self._rows, : self._visible].transpose(1, 2).to(new.dtype)

    def move(self, *, source: int, target: int, tokens: int) -> None:
        """Copy the first ``tokens`` of one slot into another, so that the slots in use stay neighbours."""
        for store in (*self._keys, *self._values):
            store[target, :tokens] = store[source, :tokens]
