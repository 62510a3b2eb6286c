"""What a language model is held against: compressors and n-grams on the same text, and the text of its training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tokenizers import Tokenizer

from trainwright.artifact.shards import ANSWERED, TokenDataset, TokenSplit
from trainwright.model.generation.generate import complete
from trainwright.model.generation.text_stream import TokenBytes
from trainwright.model.network import Network
from trainwright.model.tasks.evaluate_loss import covered_tokens
from trainwright.spec.generation import Sampling
from trainwright.spec.recipe import Recipe
from trainwright.stages.evaluate.asking import encoded
from trainwright.stages.evaluate.baselines import NGRAM_TRAIN_BYTES, SPLIT_BYTES, compressors, ngrams, take
from trainwright.stages.evaluate.ngram import stream
from trainwright.stages.evaluate.overlap import longest_overlap

OVERLAP_BYTES = 256 << 20
"""Training text that completions are looked up in at most."""

READ_TOKENS = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Baselines by split, or why there are none; completions with their overlap; bytes of text that was searched."""

    baselines: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    completions: Sequence[Mapping[str, Any]] = ()
    searched_bytes: int = 0
    skipped: str = ""


def compare(
    recipe: Recipe, dataset: TokenDataset, splits: Mapping[str, TokenSplit], model: Network, tokenizer: Tokenizer
) -> Comparison:
    """Returns what to hold a language model's numbers against.

    Args:
        recipe: says how much text is measured and which prompts are completed.
        dataset: its ``train`` split is what n-grams count and what completions are looked up in.
        splits: the splits that are measured.
        model: makes logits over the vocabulary.
        tokenizer: the model's.
    """
    read = TokenBytes(tokenizer)
    train = dataset.splits.get("train")
    training = stream(take(texts(train, read), OVERLAP_BYTES)) if train else b""
    chats = recipe.task.kind.needs in ANSWERED
    completions = _completions(recipe, model, tokenizer, dataset if chats else None)
    for completion in completions:
        completion["overlap"] = asdict(longest_overlap(completion["text"].encode(), training))
    return Comparison(
        baselines={} if chats else _baselines(dataset, splits, read, recipe.evaluate.tokens),
        completions=completions,
        searched_bytes=len(training),
    )


def _completions(
    recipe: Recipe, model: Network, tokenizer: Tokenizer, chats: TokenDataset | None
) -> list[dict[str, Any]]:
    """Completes the prompts; where the dataset holds chats, each is a question that is asked by its template."""
    section = recipe.evaluate
    prompts = encoded(section.prompts, tokenizer, chats)
    sampling = Sampling(max_tokens=section.max_new_tokens, temperature=section.temperature, seed=recipe.seed)
    answers = complete(model, tokenizer, prompts, sampling)
    return [{"prompt": prompt, **asdict(answer)} for prompt, answer in zip(section.prompts, answers, strict=True)]


def _baselines(
    dataset: TokenDataset, splits: Mapping[str, TokenSplit], read: TokenBytes, tokens: int | None
) -> dict[str, list[dict[str, Any]]]:
    """Compressors and n-grams on the documents that the model was measured on."""
    documents = {
        name: take(texts(split, read, tokens=covered_tokens(split, tokens)), SPLIT_BYTES)
        for name, split in splits.items()
    }
    train = dataset.splits.get("train")
    counted = ngrams(take(texts(train, read), NGRAM_TRAIN_BYTES) if train else [], list(documents.values()))
    return {
        name: [asdict(baseline) for baseline in (*compressors(part), *by_counting)]
        for (name, part), by_counting in zip(documents.items(), counted, strict=True)
    }


def texts(split: TokenSplit, read: TokenBytes | Sequence[bytes], *, tokens: int | None = None) -> Iterator[bytes]:
    """Yields the text of each document within the first ``tokens`` tokens, without its end-of-text token."""
    ends = split.document_ends.astype(int).tolist()
    first = 0
    while first < len(ends):
        begin = ends[first - 1] if first else 0
        last = first
        while last + 1 < len(ends) and ends[last + 1] - begin <= READ_TOKENS:
            last += 1
        ids = split.read(begin, ends[last]).tolist()
        for number in range(first, last + 1):
            if tokens is not None and ends[number] > tokens:
                return
            start = ends[number - 1] if number else 0
            yield b"".join(read[token] for token in ids[start - begin : ends[number] - begin - 1])
        first = last + 1
