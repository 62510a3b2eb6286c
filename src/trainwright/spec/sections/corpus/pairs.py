"""Keys of sources of texts that belong together; loaded where a recipe names such a source."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from trainwright.spec.sections.corpus.sources import PathsSection, Records, SourceSection


class PairsSource(PathsSection):
    """Two texts that belong together, one pair to a line of JSON or a row of Parquet.

    A question and its answer, a title and its text. Beside them texts may stand that look alike and do not belong to
    the first one: hard negatives.
    """

    records: ClassVar[Records] = "pairs"

    anchor_key: str = Field("anchor", min_length=1, description="key that holds the text that is searched with")
    positive_key: str = Field("positive", min_length=1, description="key that holds the text that belongs to it")
    negative_key: str | None = Field(
        None, min_length=1, description="key that holds texts which do not belong to it: one, or a list"
    )
    negatives: int = Field(
        0, ge=0, le=64, description="how many of them are taken, the first ones; records with fewer are dropped"
    )

    @property
    def texts(self) -> int:
        """Returns the texts of a record."""
        return 2 + self.negatives

    @model_validator(mode="after")
    def _negatives_with_their_key(self) -> Self:
        if (self.negative_key is None) != (self.negatives == 0):
            raise ValueError(
                f"negative_key and negatives go together, seen negative_key: {self.negative_key} and "
                f"negatives: {self.negatives}"
            )
        return self


class DocstringPairsSource(SourceSection):
    """Pairs from the standard library of the Python that runs, to try them without any file of one's own.

    A docstring's first paragraph belongs to the head of its function or class.
    """

    records: ClassVar[Records] = "pairs"

    @property
    def texts(self) -> int:
        """Returns the texts of a record."""
        return 2
