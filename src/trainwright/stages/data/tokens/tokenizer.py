"""Phase 3: a byte-level BPE tokenizer, trained on the train split or brought along, as a Hugging Face tokenizer.json.

Ids: 0 to 255 are the bytes themselves, 256 is the end-of-text token, merges follow in the order they were learnt. Both
trainers end in the same writer, so that equal merges give an equal file. Pre-tokenisation is GPT-2's pattern, the one
that gigatoken's trainer knows.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from pickle import PickleError

from trainwright.artifact.store import write_atomically, writing
from trainwright.artifact.tokenizer import END_OF_TEXT_ID, end_of_text_id, load_tokenizer
from trainwright.core.errors import DataError
from trainwright.launch.jobs import WorkerDied, run_apart
from trainwright.spec.sections.data import TokenizerSection
from trainwright.stages.data.optional import need
from trainwright.stages.data.parts import TERMINATOR, read_documents
from trainwright.stages.data.tokens.encoders import EncoderName, GigatokenEncoder

Merges = list[tuple[bytes, bytes]]


class _Refused(Exception):
    """gigatoken cannot train on this corpus; the text says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedTokenizer:
    """What training gave: the real vocabulary may be smaller than asked for where the corpus is small."""

    vocabulary: int
    trainer: EncoderName
    reason: str


# ------------------------------------------------------------------------------------------------------------ training
def train_tokenizer(section: TokenizerSection, documents: Sequence[Path], target: Path) -> TrainedTokenizer:
    """Train on ``.docs`` files and write tokenizer.json.

    Raises:
        DataError: the end-of-text token is a word of the corpus.
        MissingPackage: ``tokenizers`` is not installed.
        MachineError: the disk is full.
    """
    trainer: EncoderName = "gigatoken"
    reason = "its trainer breaks ties as tokenizers does"
    if find_spec("gigatoken") is None:
        trainer, reason = "tokenizers", "gigatoken is not installed"
    else:
        try:
            merges = _train_with_gigatoken(section, documents)
        except _Refused as refusal:
            trainer, reason = "tokenizers", str(refusal)
    if trainer == "tokenizers":
        merges = run_apart(tokenizers_merges, _job(section, documents))
    learnt = {left + right for left, right in merges}
    if section.end_of_text.encode() in learnt:
        raise DataError(
            "the end-of-text token is a word of the corpus",
            seen=repr(section.end_of_text),
            fix="set data.tokenizer.end_of_text to something that no text says, such as <|endoftext|>",
        )
    text = tokenizer_json(merges, end_of_text=section.end_of_text)
    with writing(target):
        write_atomically(target, text.encode())
    return TrainedTokenizer(vocabulary=257 + len(learnt), trainer=trainer, reason=reason)


_Job = tuple[list[str], int, str]
"""What a trainer needs: the documents' files, the vocabulary, the end-of-text token."""


def _job(section: TokenizerSection, documents: Sequence[Path]) -> _Job:
    return [str(path) for path in documents], section.vocabulary, section.end_of_text


def _train_with_gigatoken(section: TokenizerSection, documents: Sequence[Path]) -> Merges:
    try:
        merges = run_apart(gigatoken_merges, _job(section, documents))
    except (ValueError, RuntimeError, OSError, PickleError, WorkerDied) as error:
        raise _Refused(f"gigatoken's trainer failed: {error}") from error
    learnt = [left + right for left, right in merges]
    if len(set(learnt)) < len(learnt) or any(len(token) < 2 for token in learnt):
        raise _Refused("the corpus is too small to fill the vocabulary with gigatoken")
    # Where words run out, gigatoken goes on with pairs that never occur. The last merge tells: nothing replaces its
    # token, so it must be found in the text it was learnt from.
    if learnt and not run_apart(last_token_occurs, (merges, [str(path) for path in documents], section.end_of_text)):
        raise _Refused("the corpus is too small to fill the vocabulary with gigatoken")
    return merges


def gigatoken_merges(job: _Job) -> Merges:
    """Runs gigatoken's trainer, in a process of its own because it prints to the terminal and ignores Ctrl-C."""
    paths, vocabulary, end_of_text = job
    gigatoken = need("gigatoken", needed_for="training the tokenizer")
    sys.stdout.flush()
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    source = gigatoken.TextFileSource(paths, separator=TERMINATOR)
    _, merges = gigatoken.train_bpe(source, vocabulary, [end_of_text], tie_breaking="huggingface")
    return list(merges)


def last_token_occurs(job: tuple[Merges, list[str], str]) -> bool:
    """Returns whether the last merge's token is in the encoded documents, in a process that Ctrl-C can end."""
    merges, paths, end_of_text = job
    encoder = GigatokenEncoder(tokenizer_json(merges, end_of_text=end_of_text))
    token, identity = b"".join(merges[-1]), 256 + len(merges)
    for path in paths:
        for text in read_documents(Path(path)):
            if token in text and identity in encoder.encode([text])[0]:
                return True
    return False


def tokenizers_merges(job: _Job) -> Merges:
    """Runs the trainer of ``tokenizers``, in a process of its own because it ignores Ctrl-C and SIGTERM."""
    paths, vocabulary, end_of_text = job
    os.environ["TOKENIZERS_PARALLELISM"] = "true"  # nothing else runs meanwhile
    tokenizers = need("tokenizers", needed_for="training the tokenizer")
    trainers = need("tokenizers.trainers", needed_for="training the tokenizer")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[end_of_text],
        show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    texts = (text.decode() for path in paths for text in read_documents(Path(path)))
    tokenizer.train_from_iterator(texts, trainer)
    raw = {character: bytes([byte]) for byte, character in byte_characters().items()}

    def unwritten(token: str) -> bytes:
        return b"".join(map(raw.__getitem__, token))

    learnt = json.loads(tokenizer.to_str())["model"]["merges"]
    return [(unwritten(left), unwritten(right)) for left, right in learnt]


# ------------------------------------------------------------------------------------------------------------ the file
def byte_characters() -> Mapping[int, str]:
    """Returns the printable character that byte-level BPE files write for each byte (GPT-2's table).

    Bytes that are printable in Latin-1 stand for themselves, the others for the characters from U+0100 on.
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return {byte: chr(byte) if byte in printable else chr(next(others)) for byte in range(256)}


def tokenizer_json(merges: Sequence[tuple[bytes, bytes]], *, end_of_text: str) -> str:
    """Returns a tokenizer.json that ``tokenizers`` and ``transformers`` load: byte-level, lossless, no prefix space."""
    characters = byte_characters()

    def written(token: bytes) -> str:
        return "".join(map(characters.__getitem__, token))

    vocabulary = {written(bytes([byte])): byte for byte in range(256)} | {end_of_text: END_OF_TEXT_ID}
    for left, right in merges:
        vocabulary.setdefault(written(left + right), len(vocabulary))  # two pairs may spell one token
    special = {
        "id": END_OF_TEXT_ID,
        "content": end_of_text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": [[written(left), written(right)] for left, right in merges],
    }
    record = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [special],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": model,
    }
    return json.dumps(record, ensure_ascii=False, indent=1) + "\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerFacts:
    """What the shards need to know about a tokenizer.json."""

    vocabulary: int
    end_of_text_id: int


def tokenizer_facts(path: Path, *, end_of_text: str) -> TokenizerFacts:
    """Load a tokenizer.json and look up its size and end-of-text id.

    Raises:
        DataError: it is missing, broken, or has no such token.
    """
    tokenizer = load_tokenizer(path)
    identity = end_of_text_id(tokenizer, end_of_text, where=path)
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values())
    return TokenizerFacts(vocabulary=largest + 1, end_of_text_id=identity)
