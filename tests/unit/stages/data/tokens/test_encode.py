from __future__ import annotations

import numpy as np
import pytest
import tokenizers

from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError
from trainwright.stages.data.arrange import documents_path
from trainwright.stages.data.parts import TERMINATOR
from trainwright.stages.data.tokens import encode as module
from trainwright.stages.data.tokens.encode import EncodeJob, assemble, encode_bucket
from trainwright.stages.data.tokens.tokenizer import TokenizerFacts, tokenizer_json

FACTS = TokenizerFacts(vocabulary=259, end_of_text_id=256)
BUCKETS = [["first", "", "the é<|endoftext|>"], [], ["last one\n"]]


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(tokenizer_json([(b"s", b"t"), (b"t", b"h")], end_of_text="<|endoftext|>"), encoding="utf-8")
    return path


def jobs(directory, tokenizer, **changes):
    directory.mkdir(exist_ok=True)
    for bucket, texts in enumerate(BUCKETS):
        documents_path(directory, bucket, "train").write_bytes(b"".join(t.encode() + TERMINATOR for t in texts))
    settings = {"encoder": "gigatoken", "lossless": True} | changes
    return [
        EncodeJob(bucket=bucket, splits=("train",), tokenizer=tokenizer, facts=FACTS, directory=directory, **settings)
        for bucket in range(len(BUCKETS))
    ]


@pytest.mark.parametrize("encoder", ["gigatoken", "tokenizers"])
@pytest.mark.parametrize("batch", [1, 10, 1 << 20])
def test_shards_hold_every_document_in_order_and_its_end(tmp_path, tokenizer, encoder, batch, monkeypatch):
    monkeypatch.setattr(module, "_BATCH_BYTES", batch)
    assert [encode_bucket(job) for job in jobs(tmp_path / "parts", tokenizer, encoder=encoder)] == [0, 0, 0]
    entries = assemble(
        tmp_path,
        tmp_path / "parts",
        buckets=3,
        splits=["train"],
        end_of_text="<|endoftext|>",
        facts=FACTS,
        shard_tokens=8,
    )
    split = TokenDataset.open(tmp_path).splits["train"]
    reference = tokenizers.Tokenizer.from_file(str(tokenizer))
    reference.encode_special_tokens = True
    texts = [text for bucket in BUCKETS for text in bucket]
    expected = [[*reference.encode(text).ids, 256] for text in texts]
    assert split.read(0, split.tokens).tolist() == [token for ids in expected for token in ids]
    assert split.document_ends.tolist() == np.cumsum([len(ids) for ids in expected]).tolist()
    assert split.document_bytes.tolist() == [len(text.encode()) for text in texts]
    assert entries["train"].documents == 4


def test_a_finished_bucket_is_not_encoded_again(tmp_path, tokenizer, monkeypatch):
    for job in jobs(tmp_path / "parts", tokenizer):
        encode_bucket(job)
    monkeypatch.setattr(module, "load_encoder", lambda *_: pytest.fail("encoded again"))
    for job in jobs(tmp_path / "parts", tokenizer):
        encode_bucket(job)


class Forgetful:
    """An encoder that loses upper case, as some pretrained tokenizers do."""

    def encode(self, texts):
        return [np.frombuffer(text.lower(), np.uint8) for text in texts]

    def decode(self, ids):
        return ids.astype(np.uint8).tobytes()


def test_documents_that_do_not_come_back_are_counted_or_refused(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(module, "load_encoder", lambda *_: Forgetful())
    monkeypatch.setitem(globals(), "BUCKETS", [["Upper", "lower", "CASE"]])
    (job,) = jobs(tmp_path / "a", tokenizer, lossless=False)
    assert encode_bucket(job) == 2
    assert encode_bucket(job) == 2, "the count outlives an interruption"
    (job,) = jobs(tmp_path / "b", tokenizer, lossless=True)
    with pytest.raises(DataError, match="does not give every document back"):
        encode_bucket(job)
