"""What the stage does with chats in place of encoding documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwright.artifact.events import Events
from trainwright.artifact.tokenizer import load_tokenizer
from trainwright.core.errors import DataError, RecipeError
from trainwright.core.fingerprint import digest
from trainwright.core.paths import local_path
from trainwright.core.spelling import counted
from trainwright.model.chats.answers import ChatEncoder, Unfit, template_problem
from trainwright.model.chats.template import NEEDED, ChatTemplate, read_template
from trainwright.model.conventions import read_tokenizer
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.chats.encode import ChatJob, encode_chats, merge
from trainwright.stages.data.chats.records import chats_of
from trainwright.stages.data.funnel import Funnel
from trainwright.stages.data.parts import TERMINATOR, publish, read_documents
from trainwright.stages.data.tokens.encoders import EncoderChoice
from trainwright.stages.data.tokens.tokenizer import TokenizerFacts
from trainwright.stages.data.workers import run_buckets

KEY = "data.chat.template"
ENCODER = EncoderChoice(encoder="tokenizers", reason="templates write special tokens", checked_documents=0)


def template_of(section: DataSection) -> ChatTemplate | None:
    """Returns how chats become text; None where sources give documents.

    Raises:
        DataError: there is no template, it is no valid Jinja, or no chat can be learnt from with it.
        RecipeError: the tokenizer lacks a token that it needs.
    """
    if section.records not in ("chats", "preferences"):
        return None
    rules = section.tokenizer
    path = None if rules.path is None else local_path(rules.path)
    try:
        template = read_template(section.chat.template, path, end_of_text=rules.end_of_text)
        problem = template_problem(template, only_last=section.records == "preferences")
    except DataError as error:
        raise error.at(KEY) from error
    if problem is not None:
        fix = f"take another one, such as turns, in {KEY}"
        raise DataError("answers cannot be told in this template", where=KEY, seen=problem, fix=fix)
    _check_tokens(template, path, end_of_text=rules.end_of_text)
    return template


def _check_tokens(template: ChatTemplate, tokenizer: Path | None, *, end_of_text: str) -> None:
    """Checks that the tokenizer has the special tokens of a template of ours; a trained one has the end of text."""
    needed = NEEDED.get(template.source, ())
    has = (lambda text: text == end_of_text) if tokenizer is None else _known_in(tokenizer)
    missing = [text for text in needed if not has(text)]
    if missing:
        raise RecipeError(
            "the tokenizer lacks a token of this chat template",
            where=KEY,
            seen=", ".join(missing),
            fix="take turns, which needs the token between documents alone",
        )


def _known_in(path: Path) -> Any:
    tokenizer = load_tokenizer(path)
    return lambda text: tokenizer.token_to_id(text) is not None


def template_digest(section: DataSection) -> str | None:
    """Returns the sha256 of the template and its special tokens; None where sources give documents. Raises so too."""
    template = template_of(section)
    return None if template is None else digest([template.text, dict(template.special_tokens)])


def said_in(documents: Iterable[Path], scratch: Path) -> Iterator[Path]:
    """Yields for each file of chats one with what is said in each: what a tokenizer is trained on."""
    for number, path in enumerate(documents):
        said = scratch / f"said-{number:05d}.docs"
        publish(said, (_said(form) + TERMINATOR for form in read_documents(path)))
        yield said


def _said(form: bytes) -> bytes:
    contents = dict.fromkeys(message["content"] for chat in chats_of(form.decode()) for message in chat)
    return "\n\n".join(contents).encode()


def chat_jobs(
    section: DataSection,
    template: ChatTemplate,
    tokenizer: Path,
    facts: TokenizerFacts,
    *,
    splits: Sequence[str],
    parts: Path,
    buckets: int,
) -> list[ChatJob]:
    """Returns the jobs that encode all buckets."""
    return [
        ChatJob(
            bucket=bucket,
            splits=tuple(splits),
            tokenizer=tokenizer,
            vocabulary=facts.vocabulary,
            template=template,
            max_tokens=section.chat.max_tokens,
            only_last=section.records == "preferences",
            directory=parts,
        )
        for bucket in range(buckets)
    ]


def encode_all(jobs: Sequence[ChatJob], funnels: Sequence[Funnel], events: Events, *, workers: int) -> None:
    """Encodes all chats; adds to each source's funnel what was dropped on the way, and tells it.

    Raises:
        DataError: no chat of a split is left.
        MachineError: the disk is full.
    """
    first = jobs[0]
    try:
        encoder = ChatEncoder(read_tokenizer(first.tokenizer), first.template, only_last=first.only_last)
        if encoder.end_id() is None:
            events.message(
                "the chat template ends no answer with a special token: a served model will not know its end"
            )
    except Unfit as problem:
        raise DataError("answers cannot be told in this template", where=KEY, seen=str(problem)) from problem
    facts = run_buckets(encode_chats, jobs, events, workers=workers)
    kept = merge(funnels, facts)
    for reason, count in _dropped(facts).items():
        places = next(funnel.examples[reason] for funnel in funnels if reason in funnel.examples)
        events.message(f"dropped {counted(count, 'chat')}: {reason} ({', '.join(places[:3])})")
    for split, count in kept.items():
        if not count:
            fix = "give more data, or raise data.chat.max_tokens"
            raise DataError("no chat of the {split} split is left", where="data.chat", fix=fix, split=split)


def _dropped(facts: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Returns how many chats were dropped while they were encoded, by reason."""
    counts: dict[str, int] = {}
    for each in facts:
        for record in each["dropped"].values():
            for reason, tally in record["dropped"].items():
                counts[reason] = counts.get(reason, 0) + tally["documents"]
    return dict(sorted(counts.items()))
