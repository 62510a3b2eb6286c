"""A small model with everything that a recipe has: sections, lists, sections by name, quantities, validators."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import pytest
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from trainwright.core.config.by_name import ByName
from trainwright.core.config.load import load
from trainwright.core.errors import RecipeError, RecipeErrors
from trainwright.core.extension import Extension
from trainwright.core.units import parse_count


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


SOURCE = Extension("source", {"files": "my.own:files", "jsonl": "my.own:jsonl"})


class Source(Section):
    kind: Annotated[str, SOURCE] = Field(description="which kind this is")


class Files(Source):
    paths: tuple[str, ...] = Field(min_length=1, description="files to read")
    include: tuple[str, ...] = ("*",)


class Jsonl(Source):
    paths: tuple[str, ...] = Field(min_length=1)
    text_key: str = Field("text", description="key that holds the text")


class Optimizer(Section):
    name: Literal["adamw", "muon"] = "adamw"
    lr: float = Field(3e-4, gt=0, le=1.0, description="peak learning rate")
    betas: tuple[float, float] = (0.9, 0.95)


class Train(Section):
    """How to train."""

    batch_tokens: Annotated[int, BeforeValidator(parse_count)] = Field(1024, description="tokens of one update")
    sequence_tokens: int = 256
    optimizer: Optimizer = Field(default_factory=Optimizer, description="the update rule")
    micro_batch: int | Literal["auto"] = "auto"
    weights: int | list[int] | None = None
    compile: bool = False
    wait_s: float = Field(1.0, ge=0)
    limit: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.batch_tokens % self.sequence_tokens:
            raise ValueError(f"batch_tokens ({self.batch_tokens}) is not a multiple of sequence_tokens")
        return self


def _not_thirteen(numbers: dict[str, int]) -> dict[str, int]:
    if 13 in numbers.values():
        raise ValueError("unlucky")
    return numbers


class Small(Section):
    name: str = Field(min_length=1, description="what it is called")
    sources: tuple[Annotated[Source, ByName(SOURCE, Source, {"files": Files, "jsonl": Jsonl}, tag="kind")], ...] = (
        Field((), description="documents")
    )
    rent_on: tuple[str, ...] = ("t4", "l4")
    train: Train = Field(default_factory=Train, description="the run")
    extra: Annotated[dict[str, int], AfterValidator(_not_thirteen)] = Field(
        default_factory=dict, description="numbers by name"
    )

    @model_validator(mode="after")
    def _checks(self) -> Self:
        if self.name == "bad":
            bad = RecipeError("too bad", where="name", seen="bad", fix="choose another")
            raise RecipeErrors([bad, RecipeError("worse", where="train")])
        return self


@pytest.fixture
def small():
    return Small


@pytest.fixture
def read(tmp_path, monkeypatch):
    """``read(text, *overrides, env={...}, preset=text)`` -> Loaded; the file is called r.yaml."""
    monkeypatch.chdir(tmp_path)

    def _read(text, *overrides, env=None, preset=None, more=()):
        files = []
        for name, content in zip(("r.yaml", "s.yaml"), (text, *more), strict=False):
            path = tmp_path / name
            path.write_text(content, encoding="utf-8")
            files.append(path.relative_to(tmp_path))
        if preset is not None:
            (tmp_path / "quick.yaml").write_text(preset, encoding="utf-8")
        return load(
            Small,
            files=files,
            preset=tmp_path / "quick.yaml" if preset is not None else None,
            overrides=overrides,
            environ=env or {},
            ignore={"TRAINWRIGHT_WORKSPACE"},
        )

    return _read


@pytest.fixture
def lines_of(read):
    """The lines that a wrong configuration gives."""

    def _lines(*args, **kwargs):
        with pytest.raises(RecipeErrors) as caught:
            read(*args, **kwargs)
        return [str(problem) for problem in caught.value.problems]

    return _lines
