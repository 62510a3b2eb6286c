"""The stage: loss of each split, baselines on the same documents, completions and how much of them is memory."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from trainwright.artifact.events import Events
from trainwright.artifact.shards import TokenDataset, TokenSplit
from trainwright.artifact.stage import StageResult
from trainwright.artifact.store import Artifact, write_atomically
from trainwright.core.errors import DataError
from trainwright.core.records import from_json
from trainwright.model.bundle import load_bundle
from trainwright.model.decoder import Decoder
from trainwright.model.evaluate_loss import covered_tokens, summarise, token_nats
from trainwright.model.generate import complete
from trainwright.model.sampling import Sampling
from trainwright.model.text_stream import TokenBytes
from trainwright.runtime.device import DTYPES, choose
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.stages.evaluate.baselines import NGRAM_TRAIN_BYTES, SPLIT_BYTES, compressors, ngrams, take
from trainwright.stages.evaluate.breakdown import by_context, by_document_size
from trainwright.stages.evaluate.ngram import stream
from trainwright.stages.evaluate.overlap import longest_overlap

FORMAT = 1
FILE = "evaluation.json"

OVERLAP_BYTES = 256 << 20
"""Training text that completions are looked up in at most."""

READ_TOKENS = 1 << 20


def run(recipe: Recipe, inputs: Mapping[str, Artifact], out: Path, events: Events) -> StageResult:
    """Measure the trained model; a split that an interrupted run has finished is not measured again.

    Raises:
        DataError: a damaged shard or model, or a split that the dataset does not have.
    """
    started = time.perf_counter()
    inputs["plan"].verify()
    plan = from_json(Plan, json.loads(inputs["plan"].file("plan.json").read_text()), where=str(inputs["plan"].path))
    inputs["data"].verify()
    inputs["train"].verify({"model.json", "model.safetensors", "tokenizer.json"})
    dataset = TokenDataset.open(inputs["data"].path)
    splits: dict[str, TokenSplit] = {name: _split(dataset, name) for name in recipe.evaluate.splits}
    device = choose(recipe.train.exec.device).torch_device
    with _threads(plan.parallel.threads):
        model, tokenizer = load_bundle(inputs["train"].path, device=device)
        # As in training: weights in fp32, arithmetic in the plan's precision.
        model.compute_dtype = DTYPES[plan.workload.precision]
        results = {
            name: _measure(recipe, model, split, out / f".{name}.json", events) for name, split in splits.items()
        }
        completions = _completions(recipe, model, tokenizer)
    read = TokenBytes(tokenizer)
    training = b"" if dataset.splits.get("train") is None else stream(
        take(texts(dataset.splits["train"], read), OVERLAP_BYTES)
    )  # fmt: skip
    events.message("counting n-grams and compressing, to compare with")
    for name, baselines in _baselines(dataset, splits, read, recipe.evaluate.tokens).items():
        results[name]["baselines"] = baselines
    for completion in completions:
        completion["overlap"] = asdict(longest_overlap(completion["text"].encode(), training))
    record = {
        "format": FORMAT,
        "precision": plan.workload.precision,
        "sequence_tokens": recipe.train.sequence_tokens,
        "document_masking": recipe.train.document_masking,
        "splits": results,
        "completions": completions,
        "overlap_searched_bytes": len(training),
    }
    write_atomically(out / FILE, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n")
    headline = {
        f"{name}_{key}": result[key]
        for name, result in results.items()
        for key in ("bits_per_byte", "loss", "perplexity")
    }
    return StageResult(
        summary=headline,
        execution={"device": device.type, "threads": torch.get_num_threads(), "total_s": time.perf_counter() - started},
    )


def _split(dataset: TokenDataset, name: str) -> TokenSplit:
    split = dataset.splits.get(name)
    if split is None or split.tokens < 2:
        raise DataError(
            f"the dataset has no {name} split to measure", where=dataset.path,
            seen=", ".join(f"{key} ({value.tokens} tokens)" for key, value in dataset.splits.items()),
            fix=f"give it a share in data.split, or take {name!r} out of evaluate.splits",
        )  # fmt: skip
    return split


def _measure(recipe: Recipe, model: Decoder, split: TokenSplit, part: Path, events: Events) -> dict[str, Any]:
    """Loss of one split and where it comes from; kept in ``part`` until the stage is complete."""
    if part.is_file():
        kept: dict[str, Any] = json.loads(part.read_text(encoding="utf-8"))
        return kept
    started = time.perf_counter()
    costs = token_nats(
        model, split, sequence_tokens=recipe.train.sequence_tokens,
        batch_sequences=recipe.evaluate.exec.batch_sequences, tokens=recipe.evaluate.tokens,
        document_masking=recipe.train.document_masking, device=model.embedding.device,
        done=lambda done, total: events.progress(f"evaluate {split.name}", done, total=total, unit="tokens"),
    )  # fmt: skip
    seconds = time.perf_counter() - started
    found = summarise(split, costs)
    events.metric(f"evaluate/{split.name}/loss", found.loss, unit="nats/token")
    events.metric(f"evaluate/{split.name}/bits_per_byte", found.bits_per_byte, unit="bits/byte")
    result = {
        "loss": found.loss,
        "perplexity": found.perplexity if math.isfinite(found.perplexity) else None,
        "bits_per_byte": found.bits_per_byte,
        "tokens": found.tokens,
        "documents": found.documents,
        "text_bytes": found.text_bytes,
        "seconds": seconds,
        "tokens_per_s": found.tokens / seconds,
        "by_document_size": by_document_size(split, costs, documents=found.documents),
        "by_context": by_context(costs, sequence_tokens=recipe.train.sequence_tokens),
    }
    write_atomically(part, json.dumps(result).encode())
    return result


def _completions(recipe: Recipe, model: Decoder, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    section = recipe.evaluate
    sampling = Sampling(max_tokens=section.max_new_tokens, temperature=section.temperature, seed=recipe.seed)
    answers = complete(model, tokenizer, section.prompts, sampling)
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
    """The text of each document within the first ``tokens`` tokens, without its end-of-text token."""
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


@contextmanager
def _threads(wanted: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(wanted or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
