"""The network that another one learns from: read before training, frozen, whole on every process."""

from __future__ import annotations

from pathlib import Path

import torch

from trainwright.artifact.hub.base import base_folder
from trainwright.artifact.model_folder import TOKENIZER
from trainwright.core.errors import DataError, RecipeError
from trainwright.model.bundle import check_tokens, load_bundle
from trainwright.model.conventions import read_tokenizer
from trainwright.model.network import Network
from trainwright.spec.sections.tasks.keys import DistillSection

KEY = "task.teacher"


def load_teacher(
    section: DistillSection, tokenizer: Path, *, sequence_tokens: int, device: torch.device, dtype: torch.dtype
) -> Network:
    """Returns the teacher that a recipe names, without gradients.

    Args:
        section: names it.
        tokenizer: tokenizer.json of the dataset.
        sequence_tokens: of a sequence in training.
        device: where to compute.
        dtype: of its weights and its products.

    Raises:
        RecipeError: as ``check_teacher``.
        DataError: it cannot be read, or one of its weights is not finite.
    """
    folder = base_folder(section.teacher, weights=True)
    check_teacher(folder, tokenizer, sequence_tokens=sequence_tokens)
    teacher, _ = load_bundle(folder, device=device, dtype=dtype)
    for name, weight in teacher.stored():
        if not weight.isfinite().all():
            raise DataError("a weight of the teacher is not finite", where=folder, seen=name, fix="take another one")
    return teacher


def check_teacher(folder: Path, tokenizer: Path | None, *, sequence_tokens: int) -> None:
    """Checks that training can learn from a model: as it will be loaded, but of the weights their headers alone.

    Args:
        folder: with the model.
        tokenizer: of the dataset, where it is known.
        sequence_tokens: of a sequence in training.

    Raises:
        DataError: as ``load_bundle``.
        RecipeError: it predicts no next tokens, its sequences are shorter, or it has another tokenizer or vocabulary.
    """
    network, own = load_bundle(folder, device=torch.device("meta"))
    spec = network.spec
    if not spec.writes_text:
        raise RecipeError("a teacher predicts next tokens", where=KEY, seen=f"{spec.family} in {folder}")
    if spec.context_tokens < sequence_tokens:
        raise RecipeError(
            "the teacher reads no sequence so long",
            where=KEY,
            seen=f"{spec.context_tokens} tokens in {folder}",
            expected=f"at least train.sequence_tokens ({sequence_tokens})",
            fix="lower train.sequence_tokens, or take another teacher",
        )
    if tokenizer is None:
        return
    check_tokens(own, tokenizer, base=folder, where=KEY)
    entries = max(read_tokenizer(tokenizer).get_vocab(with_added_tokens=True).values()) + 1
    if entries != spec.vocabulary:
        raise RecipeError(
            "the teacher has another vocabulary than the dataset",
            where=KEY,
            seen=f"{spec.vocabulary} entries in {folder}",
            expected=f"{entries}",
            fix=f"set data.tokenizer.kind=pretrained and data.tokenizer.path={folder / TOKENIZER}; its embedding and "
            "head must have as many rows as that has tokens",
        )
