from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.corpus.digests import hash_file
from trainwright.stages.data.corpus.entries import CorpusFile
from trainwright.stages.data.stage import run


def _section(*sources, **keys):
    keys.setdefault("tokenizer", {"vocabulary": 300})
    keys.setdefault("split", {"train": 1.0, "validation": 0.0, "test": 0.0})
    keys.setdefault("exec", {"workers": 1})
    return DataSection.model_validate({"sources": list(sources), **keys})


@pytest.fixture
def section():
    """Builds a data section: sources as dicts, then keys over small defaults."""
    return _section


@pytest.fixture
def as_file():
    """Describes one file as the corpus's listing does, its digests included."""

    def describe(path):
        file = CorpusFile(source=0, name=path.name, location=str(path), size_bytes=path.stat().st_size, version="")
        return hash_file(file)

    return describe


@pytest.fixture
def prepare(tmp_path):
    """Runs the stage on a section; gives the result, the directory and the messages."""

    def do(section, out=None, **keys):
        out = tmp_path / "out" if out is None else out
        out.mkdir(exist_ok=True)
        messages = []
        events = Events(None, run="test", listeners=(lambda e: e.kind == "message" and messages.append(e.text),))
        context = Context(recipe=SimpleNamespace(data=section), out=out, root=out.parent, events=events, **keys)
        result = run(context)
        return SimpleNamespace(result=result, out=out, messages=messages, files=digests(out))

    return do


def digests(out: Path) -> dict[str, str]:
    """What would be committed: every file but the hidden ones."""
    files = (path for path in out.iterdir() if not path.name.startswith("."))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def corpus(tmp_path):
    """A JSON-lines corpus with words that repeat, duplicates, and line ends to normalise."""
    import json
    import random

    random_words = random.Random(5)
    words = ["".join(random_words.choices("abcdefghij", k=random_words.randint(2, 7))) for _ in range(300)]
    texts = [" ".join(random_words.choices(words, k=random_words.randint(5, 60))) + "\r\n" for _ in range(400)]
    texts += texts[::7]
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(4):
        lines = [json.dumps({"text": text}) for text in texts[number::4]]
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    return folder
