"""Answers to a list of prompts, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from trainwright.core.errors import TrainingError
from trainwright.model.conventions import special_ids
from trainwright.model.generation.engine import TorchEngine
from trainwright.model.generation.text_stream import TokenBytes
from trainwright.model.generation.texts import TextGenerator
from trainwright.model.network import Network
from trainwright.spec.generation import Failure, FinishReason, Sampling


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """A finished answer."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish: FinishReason


def complete(
    model: Network,
    tokenizer: Tokenizer,
    prompts: Sequence[str | Sequence[int]],
    sampling: Sampling,
    *,
    end_ids: frozenset[int] | None = None,
    places: int = 8,
) -> list[Completion]:
    """Returns answers to prompts, in their order.

    Args:
        model: the network.
        tokenizer: its tokenizer.
        prompts: texts, or their tokens.
        sampling: settings, the same for all.
        end_ids: tokens that end an answer; the tokenizer's special tokens when None.
        places: prompts completed at once.

    Raises:
        RecipeError: a prompt is empty, or leaves no room for an answer.
        TrainingError: the network computes no finite numbers.
    """
    ends = special_ids(tokenizer) if end_ids is None else end_ids
    engine = TorchEngine(model, places=min(places, max(1, len(prompts))))
    generator = TextGenerator(engine, TokenBytes(tokenizer), end_ids=ends)
    texts: dict[int, list[str]] = {}
    lengths: list[int] = []
    for prompt in prompts:
        tokens = tokenizer.encode(prompt).ids if isinstance(prompt, str) else prompt
        texts[generator.add(tokens, sampling)] = []
        lengths.append(len(tokens))
    finishes: dict[int, FinishReason] = {}
    while generator.unfinished:
        for piece in generator.step():
            if isinstance(piece, Failure):
                raise TrainingError("the model cannot complete a prompt", seen=piece.reason)
            texts[piece.key].append(piece.text)
            if piece.finish is not None:
                finishes[piece.key] = piece.finish
    return [
        Completion(text="".join(parts), prompt_tokens=length, completion_tokens=len(parts), finish=finishes[key])
        for length, (key, parts) in zip(lengths, texts.items(), strict=True)
    ]
