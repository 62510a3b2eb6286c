from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from trainwright.artifact.shard_writer import SplitWriter, write_dataset
from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError
from trainwright.model.attention import document_ids, document_positions
from trainwright.model.decoder import Decoder
from trainwright.model.families import llama
from trainwright.model.tasks.evaluate_loss import covered_tokens, summarise, token_nats
from trainwright.model.tasks.task import Share
from trainwright.spec.sections.model import ModelSection

VOCABULARY = 61
END = 60
LENGTHS = (17, 1, 40, 9, 23, 5)
CPU = torch.device("cpu")


@pytest.fixture
def split(tmp_path):
    return make_split(tmp_path, LENGTHS)


def make_split(path, lengths):
    rng = np.random.default_rng(3)
    writer = SplitWriter(path, "validation", vocabulary=VOCABULARY, end_of_text_id=END, shard_tokens=30)
    for length in lengths:
        writer.append(rng.integers(0, END, length), text_bytes=3 * length)
    write_dataset(
        path,
        vocabulary=VOCABULARY,
        end_of_text="<|endoftext|>",
        end_of_text_id=END,
        splits={"validation": writer.close()},
    )
    return TokenDataset.open(path).splits["validation"]


def make_model(family: str = "llama") -> Decoder:
    section = ModelSection(family=family, layers=2, width=16, heads=2, ffn_width=32, context_tokens=32)
    model = Decoder(section.spec(vocabulary=VOCABULARY))
    model.initialise(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)  # predictions far from uniform, so that a mistake shows
    return model


def measure(model, split, **changes):
    options = {"sequence_tokens": 8, "batch_sequences": 3, "tokens": None, "document_masking": False, "device": CPU}
    return summarise(split, token_nats(model, split, **options | changes))


def test_equals_transformers_on_the_same_windows(split):
    transformers = pytest.importorskip("transformers")
    model = make_model()
    config = transformers.LlamaConfig(**llama.to_config(model.spec))
    reference = transformers.LlamaForCausalLM(config).eval()
    reference.load_state_dict(llama.to_hf(dict(model.named_parameters()), model.spec))
    stream = torch.from_numpy(split.read(0, split.tokens).astype(np.int64))
    nats = 0.0
    for start in range(0, len(stream) - 1, 8):
        window = stream[start : start + 9].unsqueeze(0)
        # transformers shifts the labels itself and averages over len(window) - 1 targets.
        nats += float(reference(input_ids=window, labels=window).loss.detach()) * (window.shape[1] - 1)
    found = measure(model, split)
    assert found.tokens == split.tokens - 1
    assert found.nats == pytest.approx(nats, rel=1e-5)
    assert found.perplexity == pytest.approx(math.exp(nats / found.tokens), rel=1e-5)


def test_bits_per_byte_of_a_uniform_model_by_hand(split):
    model = make_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    found = measure(model, split)
    assert found.loss == pytest.approx(math.log(VOCABULARY))
    assert found.text_bytes == 3 * sum(LENGTHS)
    assert found.bits_per_byte == pytest.approx(
        (sum(LENGTHS) + len(LENGTHS) - 1) * math.log2(VOCABULARY) / (3 * sum(LENGTHS))
    )


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_documents_are_kept_apart_as_in_training(split, family):
    model = make_model(family)
    stream = torch.from_numpy(split.read(0, split.tokens).astype(np.int64))
    nats = 0.0
    with torch.no_grad():
        for start in range(0, len(stream) - 1, 8):
            window = stream[start : start + 9].unsqueeze(0)
            documents = document_ids(window[:, :-1], END)
            positions = document_positions(documents) if family == "gpt2" else None
            logits = model.logits(model(window[:, :-1], documents=documents, positions=positions))
            nats += float(F.cross_entropy(logits[0], window[0, 1:], reduction="sum"))
    masked = measure(model, split, document_masking=True)
    assert masked.nats == pytest.approx(nats, rel=1e-5)
    assert masked.nats != pytest.approx(measure(model, split).nats, rel=1e-5)


@pytest.mark.parametrize("batch_sequences", [1, 2, 5, 64])
def test_batches_do_not_show(split, batch_sequences):
    model = make_model()
    assert measure(model, split, batch_sequences=batch_sequences).nats == pytest.approx(
        measure(model, split).nats, rel=1e-6
    )


@pytest.mark.parametrize("batch_sequences", [1, 3, 100])
@pytest.mark.parametrize("places", [2, 3, 5])
def test_places_measure_each_token_once_in_as_many_passes(split, places, batch_sequences):
    model = make_model().eval()
    passes = []
    model.register_forward_hook(lambda *_: passes.append(place))
    parts = []
    options = {"sequence_tokens": 8, "batch_sequences": batch_sequences, "tokens": None, "document_masking": True}
    for place in range(places):
        share = Share(place=place, places=places, total=lambda costs: costs)
        parts.append(token_nats(model, split, **options, device=CPU, share=share))
    each = {passes.count(place) for place in range(places)}
    passes.clear()
    whole = token_nats(model, split, **options, device=CPU)
    assert (np.sum(parts, axis=0) == whole).all()
    assert (np.count_nonzero(parts, axis=0) == 1).all()
    assert each == {-(-len(passes) // places)}


def test_is_deterministic_and_leaves_the_model_as_it_was(split):
    model = make_model().train()
    assert measure(model, split) == measure(model, split)
    assert model.training


@pytest.mark.parametrize(
    ("limit", "documents"),
    [(None, 6), (1000, 6), (101, 6), (99, 6), (98, 5), (41, 3), (40, 2), (20, 2), (19, 1), (18, 1), (2, 1)],
)
def test_a_limit_moves_to_the_nearest_end_of_a_document(split, limit, documents):
    ends = np.cumsum([length + 1 for length in LENGTHS])
    found = measure(make_model(), split, tokens=limit)
    assert covered_tokens(split, limit) == ends[documents - 1]
    assert (found.documents, found.tokens) == (documents, ends[documents - 1] - 1)
    assert found.text_bytes == 3 * sum(LENGTHS[:documents])


def test_a_limited_measure_is_the_beginning_of_the_whole(split):
    model = make_model()
    options = {"sequence_tokens": 8, "batch_sequences": 2, "document_masking": True, "device": CPU}
    whole = token_nats(model, split, tokens=None, **options)
    part = token_nats(model, split, tokens=70, **options)
    assert part == pytest.approx(whole[: len(part)], rel=1e-5)


def test_progress_is_told(split):
    seen = []
    token_nats(
        make_model(),
        split,
        sequence_tokens=8,
        batch_sequences=3,
        tokens=None,
        document_masking=False,
        device=CPU,
        done=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (split.tokens - 1, split.tokens - 1)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})


def test_a_split_without_a_target_is_refused(tmp_path):
    with pytest.raises(DataError, match="too short to measure"):
        measure(make_model(), make_split(tmp_path, ()))
