"""Keys of sources whose words have labels; loaded where a recipe names such a source."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from trainwright.spec.sections.corpus.labels import LabelForm
from trainwright.spec.sections.corpus.sources import PathsSection, Records


class LabelledWordsSource(PathsSection):
    """Sentences, of whose words each has a label."""

    records: ClassVar[Records] = "words"
    label_kind: ClassVar[LabelForm] = "words"

    @property
    def labelled(self) -> bool:
        """Returns True: each word has a label."""
        return True


class WordsSource(LabelledWordsSource):
    """A list of words and a list of their labels, one sentence to a line of JSON or a row of Parquet."""

    words_key: str = Field("words", min_length=1, description="key that holds the words")
    labels_key: str = Field("labels", min_length=1, description="key that holds the labels of words")


class ConllSource(LabelledWordsSource):
    """A word to a line, in columns that spaces or tabs part; a blank line ends a sentence (CoNLL shared tasks)."""

    word_column: int = Field(0, description="column of the word, from 0; below 0 from the last one on")
    tag_column: int = Field(-1, description="column of the word's label, counted in the same way")
    include: tuple[str, ...] = Field(
        ("*.conll", "*.iob", "*.bio", "*.txt"), description="name patterns taken from directories"
    )

    @model_validator(mode="after")
    def _two_columns(self) -> Self:
        if self.word_column == self.tag_column:
            raise ValueError(f"word_column and tag_column are both {self.word_column}: a word is not its label")
        return self
