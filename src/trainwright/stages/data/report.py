"""report.json: what was kept and dropped, by reason, and what the tokenizer makes of it.

It holds facts about the data only, so that equal input gives an equal file; how long it took and which engine did the
work stand in the manifest's execution record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwright.artifact.shard_writer import SplitEntry
from trainwright.artifact.store import write_atomically, writing
from trainwright.core.records import to_json
from trainwright.spec.parts.images import ImageForm
from trainwright.spec.sections.data import DataSection
from trainwright.stages.data.funnel import Funnel, total
from trainwright.stages.data.tokens.tokenizer import TokenizerFacts, TrainedTokenizer

FORMAT = 1


def build_report(
    section: DataSection,
    funnels: Sequence[Funnel],
    entries: Mapping[str, SplitEntry],
    facts: TokenizerFacts,
    trained: TrainedTokenizer | None,
    *,
    lossy: int | None,
    classes: Mapping[str, Mapping[str, int]] | None = None,
) -> dict[str, Any]:
    """Returns the report as plain values.

    Args:
        section: the recipe's data section.
        funnels: one per source.
        entries: the splits' entries of ``dataset.json``.
        facts: of the tokenizer used.
        trained: what training gave, or None for a pretrained tokenizer.
        lossy: documents that do not come back byte for byte from their ids; None of chats, which are not read back.
        classes: the documents of each class, by split; None of documents without labels.
    """
    tokens = sum(entry.tokens for entry in entries.values())
    text_bytes = sum(entry.text_bytes for entry in entries.values())
    return {
        **_read(section, funnels),
        "splits": {
            split: {
                "documents": entry.documents,
                "bytes": entry.text_bytes,
                "tokens": entry.tokens,
                "bytes_per_token": _ratio(entry.text_bytes, entry.tokens),
                **({"classes": dict(classes[split])} if classes is not None else {}),
            }
            for split, entry in entries.items()
        },
        "tokenizer": {
            "kind": section.tokenizer.kind,
            "vocabulary": facts.vocabulary,
            "asked_vocabulary": None if trained is None else section.tokenizer.vocabulary,
            "end_of_text": {"text": section.tokenizer.end_of_text, "id": facts.end_of_text_id},
            "bytes_per_token": _ratio(text_bytes, tokens),
            "lossy_documents": lossy,
        },
    }


def image_report(
    section: DataSection,
    funnels: Sequence[Funnel],
    entries: Mapping[str, SplitEntry],
    form: ImageForm,
    classes: Mapping[str, Mapping[str, int]],
) -> dict[str, Any]:
    """Returns the report of images as plain values.

    Args:
        section: the recipe's data section.
        funnels: one per source.
        entries: the splits' entries of ``dataset.json``.
        form: how the images are stored.
        classes: the images of each class, by split.
    """
    splits = {
        split: {"documents": entry.documents, "bytes": entry.text_bytes, "classes": dict(classes[split])}
        for split, entry in entries.items()
    }
    return {**_read(section, funnels), "splits": splits, "images": to_json(form)}


def _read(section: DataSection, funnels: Sequence[Funnel]) -> dict[str, Any]:
    """Returns what is said of reading: the sources, and all of them together."""
    sources = [
        {"source": _describe(source.kind, getattr(source, "paths", ())), **funnel.to_json()}
        for source, funnel in zip(section.sources, funnels, strict=True)
    ]
    together = {key: value for key, value in total(funnels).to_json().items() if key != "examples"}
    return {"format": FORMAT, "sources": sources, "total": together}


def _describe(kind: str, paths: Sequence[str]) -> str:
    return f"{kind}: {', '.join(paths)}" if paths else kind


def _ratio(numerator: int, denominator: int) -> float:
    return round(numerator / denominator, 4) if denominator else 0.0


def publish_report(out: Path, report: Mapping[str, Any]) -> None:
    """Write ``report.json``.

    Raises:
        MachineError: the disk is full.
    """
    with writing(out):
        write_atomically(out / "report.json", json.dumps(report, indent=1, ensure_ascii=False).encode() + b"\n")
