"""The ``data`` section of a recipe: sources, cleaning, deduplication, split, tokenizer."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainwright.spec.section import Positive, Section


class PythonStdlibSource(Section):
    """The Python standard library's own source, which every machine with Python has."""

    kind: Literal["python-stdlib"] = Field(description="the running Python's own library")


class FilesSource(Section):
    """Whole files, one document each; gz and zst are opened by their name."""

    kind: Literal["files"] = Field(description="one document per file")
    paths: tuple[str, ...] = Field(min_length=1, description="files, directories, globs or fsspec URLs")
    include: tuple[str, ...] = Field(("*",), description="name patterns taken from directories")


class TextSource(Section):
    """Text files that hold many documents with a separator between them."""

    kind: Literal["text"] = Field(description="many documents per file")
    paths: tuple[str, ...] = Field(min_length=1, description="files, directories, globs or fsspec URLs")
    separator: str = Field("\n\n", min_length=1, description="what stands between two documents")


class JsonlSource(Section):
    """One JSON object per line."""

    kind: Literal["jsonl"] = Field(description="one JSON object per line")
    paths: tuple[str, ...] = Field(min_length=1, description="files, directories, globs or fsspec URLs")
    text_key: str = Field("text", min_length=1, description="key that holds the text")


class ParquetSource(Section):
    """Rows of Parquet files."""

    kind: Literal["parquet"] = Field(description="one document per row")
    paths: tuple[str, ...] = Field(min_length=1, description="files, directories, globs or fsspec URLs")
    text_column: str = Field("text", min_length=1, description="column that holds the text")


Source = Annotated[
    PythonStdlibSource | FilesSource | TextSource | JsonlSource | ParquetSource, Field(discriminator="kind")
]


class CleanSection(Section):
    """What happens to a document before it is kept; each drop is counted by its reason."""

    unicode: Literal["nfc", "nfkc", "none"] = Field("none", description="Unicode normalisation")
    newlines: Literal["unix", "keep"] = Field("unix", description="unix turns CR LF and CR into LF")
    min_characters: int = Field(1, ge=0, description="shorter documents are dropped")
    max_characters: int | None = Field(None, gt=0, description="longer documents are dropped")
    max_control_ratio: float = Field(0.1, ge=0, le=1, description="documents with more control characters are dropped")
    filters: tuple[str, ...] = Field((), description="further filters: names, or 'package.module:function'")


class SplitSection(Section):
    """Shares of documents, decided by a hash of the content, so that a document never changes sides."""

    train: float = Field(0.70, gt=0, le=1, description="share of the documents to train on")
    validation: float = Field(0.15, ge=0, lt=1, description="share to validate on")
    test: float = Field(0.15, ge=0, lt=1, description="share to test on")

    @model_validator(mode="after")
    def _sums_to_one(self) -> Self:
        total = self.train + self.validation + self.test
        if abs(total - 1) > 1e-6:
            raise ValueError(f"the shares sum to {total:g}, expected 1")
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


class DataExec(Section):
    """How the data is prepared; never changes a byte of the result."""

    workers: Positive | Literal["auto"] = Field("auto", description="processes; auto: one per core")
    part_documents: int = Field(2000, gt=0, description="documents per part; an interruption loses one part per worker")
    part_bytes: int = Field(
        64 * 2**20, gt=0, description="text per part and per sorting bucket: what one worker holds in memory at a time"
    )


class DataSection(Section):
    """From corpus to token shards."""

    sources: tuple[Source, ...] = Field(min_length=1, description="where documents come from")
    clean: CleanSection = Field(default_factory=CleanSection, description="normalisation and filters")
    dedup: Literal["exact", "none"] = Field("exact", description="exact: equal documents after cleaning are kept once")
    split: SplitSection = Field(default_factory=SplitSection, description="train, validation, test")
    tokenizer: TokenizerSection = Field(default_factory=TokenizerSection, description="text to tokens")
    strict: bool = Field(False, description="stop at the first broken record instead of counting it")
    exec: DataExec = Field(default_factory=DataExec, description="how, not what")
