"""Chats become tokens with their answers, the same bytes by any workers; what is dropped is counted and named."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import AddedToken

from trainwright.artifact.shards import TokenDataset
from trainwright.core.errors import DataError
from trainwright.model.chats.answers import ChatEncoder
from trainwright.model.chats.template import read_template
from trainwright.model.conventions import read_tokenizer
from trainwright.stages.data.chats.phase import template_digest, template_of
from trainwright.stages.data.check import problems
from trainwright.testing.artifacts import train_tokenizer

SHARES = {"train": 0.7, "validation": 0.15, "test": 0.15}


def chats(count):
    return [
        [
            message
            for turn in range(1 + number % 3)
            for message in (
                {"role": "user", "content": f"Question {number} of {turn}?\r\n"},
                {"role": "assistant", "content": f"It is {number * turn}, " * (1 + number % 4)},
            )
        ]
        for number in range(count)
    ]


def written(folder, rows):
    folder.mkdir(exist_ok=True)
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"kind": "chats", "paths": [str(folder)]}


def decoded(dataset, split):
    """The text of each chat, and of the answers in it."""
    tokenizer, tokens = read_tokenizer(dataset.tokenizer_path), dataset.splits[split]
    ends = tokens.document_ends.tolist()
    for start, end in zip([0, *ends], ends, strict=False):
        ids, answers = tokens.read(start, end), tokens.answers(start, end)
        yield tokenizer.decode(ids.tolist(), skip_special_tokens=False), tokenizer.decode(ids[answers].tolist())


@pytest.mark.parametrize("keys", [{"workers": 1}, {"workers": 2, "part_documents": 7, "part_bytes": 2000}])
def test_every_chat_has_its_tokens_and_answers_whatever_the_workers(prepare, section, tmp_path, keys):
    made = chats(80)
    source = written(tmp_path / "chats", [{"messages": chat} for chat in [*made, made[3]]])
    done = prepare(section(source, split=SHARES, chat={"template": "turns"}, exec=keys))
    dataset = TokenDataset.open(done.out)
    assert dataset.kind == "chats"
    template = read_template("turns", None, end_of_text="<|endoftext|>")
    clean = [[each | {"content": each["content"].replace("\r\n", "\n")} for each in chat] for chat in made]
    render = template.renderer()
    expected = {
        render(chat, False): "".join(each["content"] for each in chat if each["role"] == "assistant") for chat in clean
    }
    seen = dict(pair for split in SHARES for pair in decoded(dataset, split))
    assert seen == expected, "chats that come again are kept once"
    reference = prepare(section(source, split=SHARES, chat={"template": "turns"}), tmp_path / "again")
    assert done.files == reference.files
    assert (done.out / "chat_template.jinja").read_text() == template.text


def test_parquet_rows_are_the_same_chats(prepare, section, tmp_path):
    made = chats(30)
    lines = prepare(
        section(written(tmp_path / "lines", [{"messages": chat} for chat in made]), chat={"template": "turns"})
    )
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({"id": list(range(30)), "messages": made}), tmp_path / "rows" / "a.parquet")
    source = {"kind": "chats", "paths": [str(tmp_path / "rows")]}
    rows = prepare(section(source, chat={"template": "turns"}), tmp_path / "other")
    same = {name: digest for name, digest in lines.files.items() if name != "report.json"}
    assert {name: digest for name, digest in rows.files.items() if name != "report.json"} == same


def test_what_is_no_chat_is_counted_and_named_before_and_after_it_is_encoded(prepare, section, tmp_path):
    asked, told = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
    rows = [{"messages": chat} for chat in chats(20)]
    rows += [{"messages": [asked, asked, told]}, {"text": "x"}, {"messages": [asked, {"role": "tool", "content": "t"}]}]
    rows += [{"messages": [asked, {"role": "assistant", "content": "word " * 200}]}]
    rows += [{"messages": [{"role": "user", "content": "say <|endoftext|>"}, told]}]
    source = written(tmp_path / "chats", rows)
    done = prepare(section(source, chat={"template": "turns", "max_tokens": 150}))
    report = json.loads((done.out / "report.json").read_text())
    (told_of,) = report["sources"]
    assert {reason: tally["documents"] for reason, tally in told_of["broken"].items()} == {
        "no key 'messages' or 'conversations' or 'prompt'": 1,
        "two messages of the user in a row": 1,
        "unknown role 'tool'": 1,
    }
    dropped = {"over 150 tokens": 1, "a message spells the special token '<|endoftext|>'": 1}
    assert {reason: tally["documents"] for reason, tally in told_of["dropped"].items()} == dropped
    assert told_of["examples"]["over 150 tokens"] == ["a.jsonl:24"]
    assert told_of["kept"]["documents"] == report["splits"]["train"]["documents"] == 20
    assert told_of["read"]["documents"] == 25
    assert "dropped 1 chat: over 150 tokens (a.jsonl:24)" in done.messages


def test_preferences_are_two_chats_after_one_another(prepare, section, tmp_path):
    (tmp_path / "pairs.jsonl").write_text(
        "".join(json.dumps({"prompt": f"q{n}?", "chosen": f"yes {n}", "rejected": f"no {n}"}) + "\n" for n in range(25))
    )
    source = {"kind": "preferences", "paths": [str(tmp_path / "pairs.jsonl")]}
    dataset = TokenDataset.open(prepare(section(source, chat={"template": "turns"})).out)
    assert (dataset.kind, dataset.splits["train"].documents) == ("preferences", 50)
    answers = [answer for _, answer in decoded(dataset, "train")]
    assert sorted(answers[::2]) == sorted(f"yes {n}" for n in range(25))
    assert [answer.replace("yes", "no") for answer in answers[::2]] == answers[1::2]


def test_nothing_left_of_a_split_is_one_line(prepare, section, tmp_path):
    source = written(tmp_path / "chats", [{"messages": chat} for chat in chats(5)])
    with pytest.raises(DataError, match=r"data\.chat: no chat of the train split is left"):
        prepare(section(source, chat={"template": "turns", "max_tokens": 3}))


def test_a_missing_or_unfit_template_is_known_before_anything_is_read(section, tmp_path):
    source = written(tmp_path / "chats", [{"messages": chat} for chat in chats(5)])
    (tmp_path / "bad.jinja").write_text("{{ messages[-1].content }}")

    def told(**chat):
        return [str(problem) for problem in problems(section(source, chat=chat))]

    assert told(template="turns") == []
    assert told()[0].startswith("data.chat.template: there is no chat template")
    assert "lacks a token of this chat template (seen <|im_start|>" in told(template="chatml")[0]
    assert "answers cannot be told in this template" in told(template=str(tmp_path / "bad.jinja"))[0]


def test_a_model_directory_brings_template_and_tokenizer(prepare, section, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    tokenizer = train_tokenizer(["Question of It is user assistant"], vocabulary=300)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>")])
    tokenizer.save(str(model / "tokenizer.json"))
    (model / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    read_template("chatml", model / "tokenizer.json", end_of_text="<|endoftext|>").write(model)
    source = written(tmp_path / "chats", [{"messages": chat} for chat in chats(12)])
    made = section(source, tokenizer={"kind": "pretrained", "path": str(model / "tokenizer.json")})
    assert problems(made) == ()
    dataset = TokenDataset.open(prepare(made).out)
    encoder = ChatEncoder(read_tokenizer(model / "tokenizer.json"), template_of(made))
    clean = [[each | {"content": each["content"].replace("\r\n", "\n")} for each in chat] for chat in chats(12)]
    split = dataset.splits["train"]
    assert split.tokens == sum(len(encoder(chat).ids) for chat in clean)
    assert int(split.answers(0, split.tokens).sum()) == sum(int(encoder(chat).answers.sum()) for chat in clean)
    before = template_digest(made)
    (model / "chat_template.jinja").write_text("{# changed #}" + template_of(made).text)
    assert template_digest(made) != before, "another template makes another dataset"


def test_sources_of_one_kind_alone(section, tmp_path):
    with pytest.raises(ValueError, match=r"sources\.1 gives documents and sources\.0 chats"):
        section({"kind": "chats", "paths": ["x"]}, {"kind": "jsonl", "paths": ["y"]})
    with pytest.raises(ValueError, match="chat goes with sources of chats"):
        section({"kind": "jsonl", "paths": ["y"]}, chat={"template": "turns"})
