"""The ``data`` section of a recipe: sources, cleaning, deduplication, split, tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainwright.core.config.by_name import ByName
from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called
from trainwright.spec.sections.base import NamedSection, Section, Workers
from trainwright.spec.sections.corpus.labels import LabelForm
from trainwright.spec.sections.corpus.sources import SOURCE, SOURCE_KEYS, Records, SourceSection

FILTERS: Mapping[str, str] = {
    "long-lines": "trainwright.stages.data.cleaning.filters:long_lines",
    "few-letters": "trainwright.stages.data.cleaning.filters:few_letters",
    "repeated-lines": "trainwright.stages.data.cleaning.filters:repeated_lines",
}
"""A filter is a function of a text: None keeps it, a text is the reason to drop it."""
FILTER = Extension("filter", FILTERS, Called(arguments=("text",)))


class FilterSection(NamedSection):
    """A filter of documents, with its keys."""

    name: Annotated[str, FILTER] = Field(description="which filter")


class LongLines(FilterSection):
    """Drops minified and generated text."""

    max_characters: int = Field(1000, gt=0, description="documents with a longer line are dropped")
    max_mean_characters: float = Field(100.0, gt=0, description="documents with longer lines on average are dropped")


class FewLetters(FilterSection):
    """Drops tables of numbers and binary blobs in text form."""

    min_ratio: float = Field(0.25, ge=0, le=1, description="documents with fewer letters and digits are dropped")


class RepeatedLines(FilterSection):
    """Drops boilerplate."""

    max_ratio: float = Field(0.3, ge=0, le=1, description="documents with more repeated lines are dropped")


_FILTER_KEYS = {"long-lines": LongLines, "few-letters": FewLetters, "repeated-lines": RepeatedLines}


class CleanSection(Section):
    """What happens to a document before it is kept; each drop is counted by its reason."""

    unicode: Literal["nfc", "nfkc", "none"] = Field("none", description="Unicode normalisation")
    newlines: Literal["unix", "keep"] = Field("unix", description="unix turns CR LF and CR into LF")
    min_characters: int = Field(1, ge=0, description="shorter documents are dropped; above 0, blank ones too")
    max_characters: int | None = Field(None, gt=0, description="longer documents are dropped")
    max_control_ratio: float = Field(0.1, ge=0, le=1, description="documents with more control characters are dropped")
    filters: tuple[Annotated[FilterSection, ByName(FILTER, FilterSection, _FILTER_KEYS)], ...] = Field(
        (), description="further filters: names, or mappings of a name and its keys"
    )


class SplitSection(Section):
    """Shares of documents; where they have no labels a hash of the content decides, so that none changes sides.

    Of labelled documents and images every class has these shares: one with enough documents is in every split.
    """

    train: float = Field(0.70, gt=0, le=1, description="share of the documents to train on")
    validation: float = Field(0.15, ge=0, lt=1, description="share to validate on")
    test: float = Field(0.15, ge=0, lt=1, description="share to test on")

    @model_validator(mode="after")
    def _sums_to_one(self) -> Self:
        total = self.train + self.validation + self.test
        if abs(total - 1) > 1e-6:
            shares = f"train {self.train:g} + validation {self.validation:g} + test {self.test:g}"
            raise ValueError(f"the shares sum to {total:g}, expected 1: {shares}")
        return self


class TokenizerSection(Section):
    """A byte-level BPE tokenizer, trained here or brought along."""

    kind: Literal["byte-bpe", "pretrained"] = Field("byte-bpe", description="train one, or take an existing one")
    vocabulary: int = Field(32768, gt=256, description="entries, the 256 bytes and the end-of-text token included")
    path: str | None = Field(None, description="tokenizer.json of a pretrained tokenizer")
    end_of_text: str = Field("<|endoftext|>", min_length=1, description="the token between documents")
    sample_bytes: int = Field(
        4_000_000_000, gt=0, description="bytes of the train split to train the tokenizer on, taken in hash order"
    )

    @model_validator(mode="after")
    def _path_where_pretrained(self) -> Self:
        if (self.kind == "pretrained") != (self.path is not None):
            raise ValueError("path goes with kind: pretrained, and only with it")
        return self


class ChatSection(Section):
    """How chats become tokens."""

    template: str | None = Field(
        None,
        min_length=1,
        description="turns, chatml, a Jinja file or a model directory; default: what lies beside the tokenizer",
    )
    max_tokens: int | None = Field(None, gt=0, description="longer chats are dropped and counted; default: none is")


class ImagesSection(Section):
    """How images are stored: squares of bytes. Their mean and deviation are those of the train split."""

    size: int = Field(gt=0, le=4096, description="pixels, wide and high; images are resized to it (bilinear)")
    colour: Literal["rgb", "grey"] = Field("rgb", description="three channels, or one")

    @property
    def channels(self) -> int:
        """Returns bytes of a pixel."""
        return 3 if self.colour == "rgb" else 1

    @property
    def values(self) -> int:
        """Returns bytes of an image."""
        return self.size * self.size * self.channels


class DataExec(Section):
    """How the data is prepared; never changes a byte of the result."""

    workers: Workers | Literal["auto"] = Field("auto", description="processes; auto: one per core")
    part_documents: int = Field(2000, gt=0, description="documents per part; an interruption loses one part per worker")
    part_bytes: int = Field(
        64 * 2**20, gt=0, description="text per part and per sorting bucket: what one worker holds in memory at a time"
    )


class DataSection(Section):
    """From corpus to shards of tokens or of pixels."""

    sources: tuple[Annotated[SourceSection, ByName(SOURCE, SourceSection, SOURCE_KEYS, tag="kind")], ...] = Field(
        min_length=1, description="where documents come from"
    )
    clean: CleanSection = Field(default_factory=CleanSection, description="normalisation and filters")
    dedup: Literal["exact", "none"] = Field("exact", description="exact: equal documents after cleaning are kept once")
    split: SplitSection = Field(default_factory=SplitSection, description="train, validation, test")
    tokenizer: TokenizerSection = Field(default_factory=TokenizerSection, description="text to tokens")
    chat: ChatSection = Field(default_factory=ChatSection, description="chats to text, where sources give chats")
    images: ImagesSection | None = Field(None, description="how images are stored, where sources give images")
    strict: bool = Field(False, description="stop at the first broken record instead of counting it")
    exec: DataExec = Field(default_factory=DataExec, description="how, not what")

    @property
    def labelled(self) -> bool:
        """Returns whether every document has a label."""
        return all(source.labelled for source in self.sources)

    @property
    def label_kind(self) -> LabelForm:
        """Returns what a label is, in all sources."""
        kind: LabelForm = getattr(self.sources[0], "label_kind", "name")
        return kind

    @property
    def records(self) -> Records:
        """Returns what the sources give, all of them the same."""
        return self.sources[0].records

    @property
    def texts(self) -> int:
        """Returns how many texts each of their records has: of pairs two, and the negatives."""
        texts: int = getattr(self.sources[0], "texts", 1)
        return texts

    @model_validator(mode="after")
    def _one_kind_of_records(self) -> Self:
        for number, source in enumerate(self.sources):
            if (texts := getattr(source, "texts", 1)) != self.texts and source.records == self.records:
                raise ValueError(
                    f"sources.{number} gives {texts} texts a record, and sources.0 {self.texts}: make them equal"
                )
            if source.records != self.records:
                raise ValueError(
                    f"sources.{number} gives {source.records} and sources.0 {self.records}: one dataset has one of them"
                )
        if self.records not in ("chats", "preferences") and self.chat != ChatSection():
            raise ValueError("chat goes with sources of chats or preferences (kind: chats, python-stdlib-chats, ...)")
        return self

    @model_validator(mode="after")
    def _images_where_sources_give_them(self) -> Self:
        if self.records != "images":
            if self.images is not None:
                raise ValueError("images goes with sources of images (kind: images, or kind: sklearn-digits)")
            return self
        if self.images is None:
            raise ValueError("sources give images, and nothing says how large: write images: {size: 32}")
        texts = {"clean": CleanSection(), "tokenizer": TokenizerSection()}
        written = [key for key, default in texts.items() if getattr(self, key) != default]
        if written:
            raise ValueError(f"{written[0]} is for texts, and sources give images: leave it out")
        return self

    @model_validator(mode="after")
    def _all_labelled_or_none(self) -> Self:
        without = [n for n, source in enumerate(self.sources) if not source.labelled]
        if without and len(without) < len(self.sources):
            raise ValueError(
                f"sources.{without[0]} has no labels while others have some: documents of one dataset all have a "
                "label (kind: jsonl, label_key; kind: csv or parquet, label_column), or none has"
            )
        for number, source in enumerate(self.sources):
            if (seen := getattr(source, "label_kind", "name")) != self.label_kind:
                raise ValueError(
                    f"sources.{number} has label_kind: {seen}, and sources.0 label_kind: {self.label_kind}"
                )
        return self
