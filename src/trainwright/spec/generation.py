"""Generation as a server asks for it: the settings of an answer, what comes back, and the protocol of an engine.

Engines speak of tokens alone. Texts, stop texts and characters that span several tokens are the caller's
(``trainwright.model.generation.texts``), so that every engine treats them alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

from trainwright.core.frozen import dataclass

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """Settings of one answer.

    ``temperature`` 0 takes the likeliest token; ``top_p`` < 1 samples from the smallest set of likeliest tokens whose
    probabilities sum to at least that much (Holtzman et al., 2020). ``stop``: texts that end the answer and are left
    out of it. ``choice`` numbers several answers to one prompt, so that they differ under one ``seed``.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    choice: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationRequest:
    """One answer that an engine generates.

    ``end_ids`` are the tokens that end it. An engine applies all of ``sampling`` except ``stop``.
    """

    prompt: Sequence[int]
    sampling: Sampling
    end_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class NewToken:
    """One step gave this request a token.

    ``finish`` is None while the answer goes on, "stop" when ``token`` is an end token, "length" at the token limit or
    the end of the context.
    """

    key: int
    token: int
    finish: FinishReason | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """This request failed; the engine has forgotten it, and the other requests go on."""

    key: int
    reason: str


@runtime_checkable
class Generator(Protocol):
    """An engine: generates tokens for several requests at a time (continuous batching).

    One thread calls all methods. ``trainwright.testing.contract_engine`` tests every promise made here.
    """

    @property
    def name(self) -> str:
        """Name and version of the engine, for logs and metrics."""

    @property
    def context_tokens(self) -> int:
        """Returns tokens that one request may have, prompt and answer together."""

    @property
    def vocabulary(self) -> int:
        """Token ids are below this number."""

    @property
    def places(self) -> int:
        """Requests generated at once; more wait in line, first come first served."""

    @property
    def unfinished(self) -> int:
        """Requests under way and in line."""

    def add(self, request: GenerationRequest) -> int:
        """Put a request in line.

        Returns:
            The key that its events carry; no two requests share one.

        Raises:
            RecipeError: the prompt is empty, has a token outside the vocabulary, or leaves no room for an answer.
        """

    def cancel(self, key: int) -> None:
        """Forget a request and free its place at once; unknown and finished keys change nothing."""

    def step(self) -> Sequence[NewToken | Failure]:
        """Compute once; an exception ends the engine, a ``Failure`` one request.

        Returns:
            At most one event for each request. A request whose prompt is not worked off yet has none.
        """
