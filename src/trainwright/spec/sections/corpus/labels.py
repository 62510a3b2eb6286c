"""Keys of sources whose records may have labels."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from trainwright.spec.sections.base import Section

LabelKind = Literal["name", "names", "number"]
"""What a label is: the name of a class, names of any number of labels, or a number."""
LabelForm = Literal["name", "names", "number", "words"]
"""The same, or a label of each word."""


class LabelKeys(Section):
    """What a label is."""

    label_kind: LabelKind = Field(
        "name",
        description="name: the document's one class; names: any number of labels, for classify-many; number: a number, "
        "for regress",
    )

    @property
    def labelled(self) -> bool:
        """Returns whether every document of the source comes with a label."""
        return False

    @model_validator(mode="after")
    def _kind_of_a_label(self) -> Self:
        if self.label_kind != "name" and not self.labelled:
            raise ValueError(f"label_kind: {self.label_kind} goes with a label (label_key or label_column)")
        return self


class TableKeys(LabelKeys):
    """Columns of a table."""

    text_column: str = Field("text", min_length=1, description="column that holds the text")
    label_column: str | None = Field(
        None, min_length=1, description="column that holds the document's label, for tasks"
    )
    label_separator: str = Field(
        ";", min_length=1, description="stands between the names of label_kind: names, where they are one text"
    )

    @property
    def labelled(self) -> bool:
        """Returns whether there is a column for labels."""
        return self.label_column is not None
