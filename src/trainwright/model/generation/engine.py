"""The torch engine: a decoder with a key/value cache, many requests at a time.

Requests are added and cancelled between steps, and each step gives every running request its next token (continuous
batching; Yu et al., 2022, "Orca").

Shape legend: ``batch`` (requests of one pass), ``seq`` (tokens fed to each), ``vocabulary``.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from trainwright.artifact.model_folder import read_shape
from trainwright.core.errors import RecipeError
from trainwright.core.spelling import counted
from trainwright.hardware.machine.room import check_rotary
from trainwright.model.bundle import load_bundle
from trainwright.model.cache import KVCache
from trainwright.model.generation.cache_size import PRECISIONS, check_cache
from trainwright.model.generation.sampling import sample
from trainwright.model.network import Network
from trainwright.runtime.device import DTYPES, choose
from trainwright.spec.generation import Failure, GenerationRequest, NewToken, Sampling
from trainwright.spec.model import ModelSpec

PREFILL_TOKENS = 512
"""Prompt tokens of one pass: enough to keep the matrix products busy, few enough not to stall running requests."""


@dataclass(kw_only=True, slots=True)
class _Active:
    """A request and its progress: ``fed`` of its ``tokens`` are in the cache; ``limit`` counts prompt and answer."""

    key: int
    tokens: list[int]
    limit: int
    sampling: Sampling
    end_ids: frozenset[int]
    fed: int = 0


class TorchEngine:
    """Generates for up to ``places`` requests at once: the first implementation of ``Generator``.

    Args:
        model: on its device and in the dtype to compute in.
        places: requests generated at once.
        context_tokens: room of one request, prompt and answer; the model's context at most, and when None.
    """

    def __init__(self, model: Network, *, places: int = 8, context_tokens: int | None = None) -> None:
        self.name = f"torch {torch.__version__}"
        self.context_tokens = min(context_tokens or model.spec.context_tokens, model.spec.context_tokens)
        self.vocabulary = model.spec.vocabulary
        self.places = places
        self._model = model
        self._device = model.device
        self._cache = KVCache(
            model.spec, slots=places, max_tokens=self.context_tokens, dtype=model.compute_dtype, device=self._device
        )
        self._active: list[_Active] = []  # a request's index is its slot in the cache
        self._waiting: deque[_Active] = deque()
        self._next_key = 0

    @property
    def unfinished(self) -> int:
        """Requests under way and in line."""
        return len(self._active) + len(self._waiting)

    def add(self, request: GenerationRequest) -> int:
        """Put a request in line.

        Returns:
            The key that its events carry.

        Raises:
            RecipeError: the prompt is empty, has a token outside the vocabulary, or leaves no room for an answer.
        """
        prompt = request.prompt
        if not 0 < len(prompt) < self.context_tokens:
            raise RecipeError(
                "this prompt cannot be completed",
                seen=f"{len(prompt)} tokens",
                expected=f"1 to {self.context_tokens - 1}: "
                f"the context of {self.context_tokens} holds prompt and answer",
            )
        if min(prompt) < 0 or max(prompt) >= self.vocabulary:
            raise RecipeError(
                "this prompt has a token that does not exist",
                seen=min(prompt) if min(prompt) < 0 else max(prompt),
                expected=f"0 to {self.vocabulary - 1}",
            )
        key = self._next_key
        self._next_key += 1
        limit = min(len(prompt) + request.sampling.max_tokens, self.context_tokens)
        self._waiting.append(
            _Active(key=key, tokens=list(prompt), limit=limit, sampling=request.sampling, end_ids=request.end_ids)
        )
        return key

    def cancel(self, key: int) -> None:
        """Forget a request, in line or under way, and free its slot at once; other keys change nothing."""
        self._waiting = deque(request for request in self._waiting if request.key != key)
        for request in self._active:
            if request.key == key:
                self._release(request)
                return

    @torch.inference_mode()
    def step(self) -> list[NewToken | Failure]:
        """Give every running request a token, and work off a part of the new prompts."""
        while self._waiting and len(self._active) < self.places:
            self._active.append(self._waiting.popleft())
        running = [slot for slot, request in enumerate(self._active) if request.fed == len(request.tokens) - 1]
        prompts = self._next_prompts(set(running))
        passes = [(running, [1] * len(running)), (prompts, [self._next_share(slot) for slot in prompts])]
        events: list[NewToken | Failure] = []
        for slots, counts in passes:
            if slots:
                events += self._extend(slots, counts)
        for event in events:
            if isinstance(event, Failure) or event.finish is not None:
                self._release(next(request for request in self._active if request.key == event.key))
        return events

    def _next_prompts(self, running: set[int]) -> list[int]:
        """Slots whose prompts are fed next: the oldest first, as many as fit into one pass when padded."""
        chosen: list[int] = []
        longest = 0
        fresh = (slot for slot in range(len(self._active)) if slot not in running)
        for slot in sorted(fresh, key=lambda slot: self._active[slot].key):
            longest = max(longest, self._next_share(slot))
            if chosen and longest * (len(chosen) + 1) > PREFILL_TOKENS:
                break
            chosen.append(slot)
        return sorted(chosen)

    def _next_share(self, slot: int) -> int:
        request = self._active[slot]
        return min(len(request.tokens) - request.fed, PREFILL_TOKENS)

    def _extend(self, slots: list[int], counts: list[int]) -> list[NewToken | Failure]:
        """Feed each slot's next tokens; a request whose tokens are all fed gets a new one."""
        logits = self._forward(slots, counts)
        events: list[NewToken | Failure] = []
        highest, likeliest = (column.tolist() for column in logits.max(dim=-1))
        for row, (slot, count) in enumerate(zip(slots, counts, strict=True)):
            request = self._active[slot]
            request.fed += count
            if request.fed < len(request.tokens):
                continue
            if not math.isfinite(highest[row]):
                events.append(Failure(key=request.key, reason=f"the network's highest logit is {highest[row]}"))
                continue
            greedy = request.sampling.temperature == 0
            token = likeliest[row] if greedy else sample(logits[row], request.sampling, position=request.fed)
            events.append(_append(request, token))
        return events

    def _forward(self, slots: list[int], counts: list[int]) -> Float[Tensor, "batch vocabulary"]:
        """Logits after the last of each slot's next ``counts`` tokens.

        Shorter rows are padded on the right: what padding writes into the cache lies behind the row's own tokens, where
        nothing looks before the row overwrites it. The very last position belongs to no token (an answer's last token
        is never fed), so that padding may be written there.
        """
        longest = max(counts)
        rows = [self._active[slot] for slot in slots]
        fed = [request.tokens[request.fed : request.fed + n] for request, n in zip(rows, counts, strict=True)]
        tokens = torch.tensor([part + [0] * (longest - len(part)) for part in fed], device=self._device)
        starts = torch.tensor([request.fed for request in rows], device=self._device)
        positions = starts[:, None]
        if longest > 1:
            positions = (positions + torch.arange(longest, device=self._device)).clamp_max_(self.context_tokens - 1)
        self._cache.select(torch.tensor(slots, device=self._device), positions)
        hidden = self._model(tokens, positions=positions, cache=self._cache)
        last = hidden[:, 0]
        if longest > 1:
            last = hidden[torch.arange(len(slots)), torch.tensor(counts, device=self._device) - 1]
        return self._model.logits(last)

    def _release(self, request: _Active) -> None:
        """Free a slot; the last one moves into it, so that the slots in use stay neighbours."""
        slot, last = self._active.index(request), len(self._active) - 1
        moved = self._active.pop()
        if slot != last:
            self._active[slot] = moved
            self._cache.move(source=last, target=slot, tokens=moved.fed)


def _append(request: _Active, token: int) -> NewToken:
    request.tokens.append(token)
    if token in request.end_ids:
        return NewToken(key=request.key, token=token, finish="stop")
    finished = len(request.tokens) >= request.limit
    return NewToken(key=request.key, token=token, finish="length" if finished else None)


def open_engine(directory: Path, *, places: int) -> TorchEngine:
    """Load the model of a trained artefact or a Hugging Face directory onto this machine's device.

    Raises:
        DataError: a file is missing or damaged.
        RecipeError: the model asks for something that is not supported, or writes no text.
        MachineError: its tables, or the cache for so many places, are larger than the memory.
    """
    chosen, spec = choose(), read_writer(directory)
    check_rotary(spec, where=directory)
    check_cache(spec, places=places, kind=chosen.kind, memory_bytes=chosen.memory_bytes)
    model, _ = load_bundle(directory, device=chosen.torch_device, dtype=DTYPES[PRECISIONS[chosen.kind]])
    return TorchEngine(model, places=places)


def read_writer(directory: Path) -> ModelSpec:
    """Returns the shape of a model that writes text; no weight is read.

    Raises:
        DataError: a file is missing or damaged.
        RecipeError: it writes none.
    """
    spec = read_shape(directory)
    if not spec.writes_text:
        raise RecipeError(
            "this model tells classes or numbers, or fills gaps, and writes no text",
            where=directory,
            seen=f"a head of {counted(spec.classes, 'output')}" if spec.classes else spec.kind,
            expected="a decoder with a head over the vocabulary",
        )
    return spec
