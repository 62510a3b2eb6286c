"""Plug-ins with keys of their own, one of each kind that may have some."""

from __future__ import annotations

from pathlib import Path

import torch
from pydantic import Field
from torch.optim import SGD, Optimizer

from contract.additions.exporters import Pair
from contract.additions.tasks import Informed
from fixtures.parrot_engine import Parrot, open_engine
from trainwright.artifact.shards import TokenDataset
from trainwright.artifact.store import Artifact
from trainwright.core.extension import with_keys
from trainwright.model.network import Network
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.data import FilterSection
from trainwright.spec.sections.export import ExporterSection
from trainwright.spec.sections.serve import EngineSection
from trainwright.spec.sections.task import TaskKind, TaskSection
from trainwright.spec.sections.updates.optimizer import OptimizerSection
from trainwright.spec.sections.updates.schedule import DecaySection


class HeavySection(OptimizerSection):
    momentum: float = Field(0.5, ge=0, lt=1, description="share of the former step")


@with_keys(HeavySection)
def heavy(network: Network, section: HeavySection) -> list[Optimizer]:
    """Gradient descent with momentum, on everything."""
    return [SGD(network.parameters(), lr=section.lr, momentum=section.momentum)]


class PowerSection(DecaySection):
    power: float = Field(0.5, gt=0, description="exponent of what is done")


@with_keys(PowerSection)
def power(done: float, section: PowerSection) -> float:
    """Falls by a power of what is done."""
    return 1 - (1 - section.final_ratio) * done**section.power


class WordSection(FilterSection):
    word: str = Field(min_length=1, description="documents with it are dropped")


@with_keys(WordSection)
def word(text: str, section: WordSection) -> str | None:
    """Drops documents with a word."""
    return f"has {section.word}" if section.word in text else None


class NoteSection(ExporterSection):
    note: str = Field("none", description="what a third file says")


class Noted(Pair):
    """A pair of files, and a note."""

    Section = NoteSection

    def __init__(self, section: NoteSection) -> None:
        self.section = section

    def write(
        self, directory: Path, network: Network, *, recipe: Recipe, trained: Artifact, dtype: torch.dtype
    ) -> None:
        super().write(directory, network, recipe=recipe, trained=trained, dtype=dtype)
        (directory / "note.txt").write_text(self.section.note, encoding="utf-8")


class UnseenSection(TaskSection):
    unseen: int = Field(3, ge=0, description="tokens of a window that are not learnt")


def partly_informed(recipe: Recipe, dataset: TokenDataset) -> Informed:
    assert isinstance(recipe.task, UnseenSection)
    return Informed(sequence_tokens=recipe.train.sequence_tokens, unseen=recipe.task.unseen)


TASK = TaskKind(make=f"{__name__}:partly_informed", Section=UnseenSection)


class MemorySection(EngineSection):
    memory_tokens: int = Field(64, gt=0, description="longest prompt and answer")


@with_keys(MemorySection)
def forgetful(directory: Path, *, places: int, section: MemorySection) -> Parrot:
    """A parrot with a memory of its own length."""
    parrot = open_engine(directory, places=places)
    parrot.context_tokens = section.memory_tokens
    return parrot
