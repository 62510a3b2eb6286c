"""Text generation with a key/value cache, many requests at a time.

``complete`` answers a list of prompts. ``Engine`` is what a server drives: requests are added and cancelled between
steps, and each step gives every active request its next token (continuous batching; Yu et al., 2022, "Orca").

Shape legend: ``batch`` (requests of one pass), ``seq`` (tokens fed to each), ``vocabulary``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float
from tokenizers import Tokenizer
from torch import Tensor

from trainwright.core.errors import RecipeError
from trainwright.model.cache import KVCache
from trainwright.model.conventions import special_ids
from trainwright.model.decoder import Decoder
from trainwright.model.sampling import Sampling, sample
from trainwright.model.text_stream import TextStream, TokenBytes

PREFILL_TOKENS = 512
"""Prompt tokens of one pass: enough to keep the matrix products busy, few enough not to stall running requests."""

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """What one step gave one request.

    ``text`` may be empty while a character or a stop text is undecided. ``finish``: None while it goes on, "stop" at
    the end of text or a stop text, "length" at the token limit or the end of the context.
    """

    key: int
    text: str
    finish: FinishReason | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A finished answer."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish: FinishReason


@dataclass(kw_only=True, slots=True)
class _Request:
    """A request and how far it is: ``fed`` of its ``tokens`` are in the cache."""

    key: int
    tokens: list[int]
    prompt_tokens: int
    limit: int
    sampling: Sampling
    text: TextStream
    fed: int = field(default=0)


class Engine:
    """Generates for up to ``slots`` requests at once; more wait in line, first come first served.

    Not thread-safe: one thread adds, cancels and steps.

    Args:
        model: on its device and in the dtype to compute in.
        token_bytes: the tokenizer's bytes.
        end_ids: tokens that end an answer.
        slots: requests generated at once.
        max_tokens: room of one request, prompt and answer; the model's context at most, and when None.
    """

    def __init__(
        self,
        model: Decoder,
        token_bytes: TokenBytes,
        *,
        end_ids: frozenset[int],
        slots: int = 8,
        max_tokens: int | None = None,
    ) -> None:
        self.max_tokens = min(max_tokens or model.spec.context_tokens, model.spec.context_tokens)
        self._model, self._token_bytes, self._end_ids = model, token_bytes, end_ids
        self._slots = slots
        self._device = model.embedding.device
        self._cache = KVCache(
            model.spec, slots=slots, max_tokens=self.max_tokens, dtype=model.compute_dtype, device=self._device
        )
        self._active: list[_Request] = []  # a request's index is its slot
        self._waiting: deque[_Request] = deque()
        self._next_key = 0

    @property
    def active(self) -> int:
        """Requests that hold a slot."""
        return len(self._active)

    @property
    def waiting(self) -> int:
        """Requests in line for one."""
        return len(self._waiting)

    def add(self, prompt: Sequence[int], sampling: Sampling) -> int:
        """Put a request in line.

        Returns:
            The key that its pieces carry.

        Raises:
            RecipeError: the prompt is empty, or leaves no room for an answer.
        """
        if not 0 < len(prompt) < self.max_tokens:
            raise RecipeError(
                "this prompt cannot be completed", seen=f"{len(prompt)} tokens",
                expected=f"1 to {self.max_tokens - 1}: the context of {self.max_tokens} holds prompt and answer",
            )  # fmt: skip
        key = self._next_key
        self._next_key += 1
        request = _Request(
            key=key, tokens=list(prompt), prompt_tokens=len(prompt), sampling=sampling,
            limit=min(len(prompt) + sampling.max_tokens, self.max_tokens),
            text=TextStream(self._token_bytes, sampling.stop),
        )  # fmt: skip
        self._waiting.append(request)
        return key

    def cancel(self, key: int) -> None:
        """Forget a request, in line or under way; its slot is free at once. A finished one is no matter."""
        self._waiting = deque(request for request in self._waiting if request.key != key)
        for request in self._active:
            if request.key == key:
                self._release(request)
                return

    @torch.inference_mode()
    def step(self) -> list[Piece]:
        """Give every running request a token, and work off a part of the new prompts."""
        while self._waiting and len(self._active) < self._slots:
            self._active.append(self._waiting.popleft())
        running = [slot for slot, request in enumerate(self._active) if request.fed == len(request.tokens) - 1]
        begun = self._next_prompts(set(running))
        passes = [(running, [1] * len(running)), (begun, [self._next_share(slot) for slot in begun])]
        pieces: list[Piece] = []
        for slots, counts in passes:
            if slots:
                pieces += self._extend(slots, counts)
        for piece in pieces:
            if piece.finish is not None:
                self._release(next(request for request in self._active if request.key == piece.key))
        return pieces

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

    def _extend(self, slots: list[int], counts: list[int]) -> list[Piece]:
        """Feed each slot's next tokens; a request whose tokens are all fed gets a new one."""
        logits = self._forward(slots, counts)
        pieces = []
        likeliest = logits.argmax(dim=-1).tolist()
        for row, (slot, count) in enumerate(zip(slots, counts, strict=True)):
            request = self._active[slot]
            request.fed += count
            if request.fed < len(request.tokens):
                continue
            greedy = request.sampling.temperature == 0
            token = likeliest[row] if greedy else sample(logits[row], request.sampling, position=request.fed)
            pieces.append(self._take(request, token))
        return pieces

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
            positions = (positions + torch.arange(longest, device=self._device)).clamp_max_(self.max_tokens - 1)
        self._cache.select(torch.tensor(slots, device=self._device), positions)
        hidden = self._model(tokens, positions=positions, cache=self._cache)
        last = hidden[:, 0]
        if longest > 1:
            last = hidden[torch.arange(len(slots)), torch.tensor(counts, device=self._device) - 1]
        return self._model.logits(last)

    def _take(self, request: _Request, token: int) -> Piece:
        request.tokens.append(token)
        ended, full = token in self._end_ids, len(request.tokens) >= request.limit
        text = "" if ended else request.text.push(token)
        if ended or full:
            text += request.text.finish()
        finish: FinishReason | None = "length" if full else None
        return Piece(key=request.key, text=text, finish="stop" if ended or request.text.stopped else finish)

    def _release(self, request: _Request) -> None:
        """Free a slot; the last one moves into it, so that the slots in use stay neighbours."""
        slot, last = self._active.index(request), len(self._active) - 1
        moved = self._active.pop()
        if slot != last:
            self._active[slot] = moved
            self._cache.move(source=last, target=slot, tokens=moved.fed)


def complete(
    model: Decoder,
    tokenizer: Tokenizer,
    prompts: Sequence[str | Sequence[int]],
    sampling: Sampling,
    *,
    end_ids: frozenset[int] | None = None,
    slots: int = 8,
) -> list[Completion]:
    """Answers to prompts, in their order.

    Args:
        model: the network.
        tokenizer: its tokenizer.
        prompts: texts, or their tokens.
        sampling: how; the same for all.
        end_ids: tokens that end an answer; the tokenizer's special tokens when None.
        slots: prompts completed at once.

    Raises:
        RecipeError: a prompt is empty, or leaves no room for an answer.
    """
    ends = special_ids(tokenizer) if end_ids is None else end_ids
    engine = Engine(model, TokenBytes(tokenizer), end_ids=ends, slots=min(slots, max(1, len(prompts))))
    texts: dict[int, list[str]] = {}
    lengths: list[int] = []
    for prompt in prompts:
        tokens = tokenizer.encode(prompt).ids if isinstance(prompt, str) else prompt
        texts[engine.add(tokens, sampling)] = []
        lengths.append(len(tokens))
    counts = dict.fromkeys(texts, 0)
    finishes: dict[int, FinishReason] = {}
    while engine.active or engine.waiting:
        for piece in engine.step():
            texts[piece.key].append(piece.text)
            counts[piece.key] += 1
            if piece.finish is not None:
                finishes[piece.key] = piece.finish
    return [
        Completion(text="".join(parts), prompt_tokens=length, completion_tokens=counts[key], finish=finishes[key])
        for length, (key, parts) in zip(lengths, texts.items(), strict=True)
    ]
