"""A bucket of chats is encoded once; what does not fit is counted under its source, with its place."""

from __future__ import annotations

import json

import numpy as np

from trainwright.artifact.shard_files import open_shard
from trainwright.model.chats.template import BUILT_IN, ChatTemplate
from trainwright.stages.data.arrange import documents_path, places_path
from trainwright.stages.data.chats.encode import ChatJob, encode_chats, merge
from trainwright.stages.data.chats.records import form_of
from trainwright.stages.data.funnel import Funnel
from trainwright.stages.data.parts import TERMINATOR, publish_json
from trainwright.stages.data.tokens.encode import ids_stem
from trainwright.testing.artifacts import END_OF_TEXT, train_tokenizer


def test_a_bucket_is_encoded_once_and_says_what_it_dropped(tmp_path):
    tokenizer = train_tokenizer(["user assistant yes no"], vocabulary=280)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    said = ["yes", "no " * 50, f"no {END_OF_TEXT}", "no"]
    forms = [
        form_of([[{"role": "user", "content": "q"}, {"role": "assistant", "content": answer}]]).encode()
        for answer in said
    ]
    documents_path(tmp_path, 0, "train").write_bytes(b"".join(form + TERMINATOR for form in forms))
    publish_json(places_path(tmp_path, 0, "train"), [[0, "a:1"], [1, "b:1"], [1, "b:2"], [1, "b:3"]])
    job = ChatJob(
        bucket=0,
        splits=("train",),
        tokenizer=tmp_path / "tokenizer.json",
        vocabulary=tokenizer.get_vocab_size(),
        template=ChatTemplate(text=BUILT_IN["turns"], source="turns", special_tokens={"eos_token": END_OF_TEXT}),
        max_tokens=60,
        only_last=False,
        directory=tmp_path,
    )
    facts = encode_chats(job)
    shard = open_shard(ids_stem(tmp_path, 0, "train"), np.dtype("<u2"), answered=True)
    assert len(shard.ends) == 2
    text = tokenizer.decode(shard.tokens.tolist(), skip_special_tokens=False)
    assert text == "".join(f"### user\nq\n### assistant\n{answer}{END_OF_TEXT}\n" for answer in ("yes", "no"))
    flags = np.unpackbits(shard.answers, bitorder="little")[: len(shard.tokens)].astype(bool)
    assert (
        tokenizer.decode(shard.tokens[flags].tolist(), skip_special_tokens=False) == f"yes{END_OF_TEXT}no{END_OF_TEXT}"
    )

    funnels = [Funnel(), Funnel()]
    funnels[0].kept.add(len(forms[0]))
    funnels[1].kept.add(sum(map(len, forms[1:])), 3)
    assert merge(funnels, [facts]) == {"train": 2}
    assert [funnel.kept.documents for funnel in funnels] == [1, 1]
    assert funnels[1].kept.bytes == len(forms[3])
    dropped = funnels[1].dropped
    assert {reason: tally.documents for reason, tally in dropped.items()} == {
        "over 60 tokens": 1,
        f"a message spells the special token {END_OF_TEXT!r}": 1,
    }
    assert funnels[1].examples["over 60 tokens"] == ["b:1"]
    documents_path(tmp_path, 0, "train").unlink()
    assert json.loads(json.dumps(encode_chats(job))) == json.loads(json.dumps(facts)), "an interrupted run takes it up"
