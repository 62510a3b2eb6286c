"""Batches of tasks that read documents, records of texts, chats or pairs of answers, from random tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from parallel.cases import SEQUENCE_TOKENS, SEQUENCES
from trainwright.model.losses import IGNORE

LABELS = 3


def documents_of(tokens: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Documents of different lengths, each with some of three labels, a number, and labels of some of its words."""
    last = torch.randint(0, SEQUENCE_TOKENS, (SEQUENCES,), generator=generator)
    has = (torch.rand((SEQUENCES, LABELS), generator=generator) < 0.4).float()
    number = torch.randn(SEQUENCES, generator=generator)
    targets = torch.randint(0, LABELS, (SEQUENCES, SEQUENCE_TOKENS), generator=generator)
    counts = (torch.rand(targets.shape, generator=generator) < 0.6) & (torch.arange(SEQUENCE_TOKENS) <= last[:, None])
    targets[~counts], targets[3] = IGNORE, IGNORE
    return {"tokens": tokens[:, :-1].clone(), "last": last, "has": has, "number": number, "targets": targets}


def records_of(tokens: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Three texts of different lengths in a sequence, and some padding."""
    ends = torch.sort(
        torch.rand((SEQUENCES, SEQUENCE_TOKENS - 1), generator=generator).argsort(dim=1)[:, :3] + 1
    ).values
    documents = (torch.arange(SEQUENCE_TOKENS)[None, :, None] >= ends[:, None]).sum(dim=-1)
    keys = torch.arange(3 * SEQUENCES).reshape(SEQUENCES, 3)
    return {"tokens": tokens[:, :-1].clone(), "documents": documents, "keys": keys}


def chats_of(tokens: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Two chats and some padding in a sequence; a third of the targets are answers, none in one sequence."""
    targets = tokens[:, 1:].clone()
    targets[torch.rand(targets.shape, generator=generator) > 1 / 3] = -100
    targets[2], targets[:, 6], targets[:, 13:] = -100, -100, -100
    documents = torch.tensor([0] * 7 + [1] * 7 + [2] * (SEQUENCE_TOKENS - 14)).expand(SEQUENCES, -1).clone()
    return {"tokens": tokens[:, :-1].clone(), "targets": targets, "documents": documents}


def pairs_of(tokens: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
    """Two pairs and some padding in a sequence, one pair in another, none in a third; two thirds are answers."""
    targets = tokens[:, 1:].clone()
    targets[torch.rand(targets.shape, generator=generator) > 2 / 3] = -100
    targets[:, (2, 5, 8, 11)] = tokens[:, (3, 6, 9, 12)]  # each answer has a token
    documents = torch.tensor([0] * 3 + [1] * 3 + [2] * 3 + [3] * 3 + [4] * (SEQUENCE_TOKENS - 12)).repeat(SEQUENCES, 1)
    documents[1, 6:], documents[4] = 2, 0
    targets[documents == 4], targets[1, 6:], targets[4] = -100, -100, -100
    pairs = torch.tensor([2] * SEQUENCES)
    pairs[1], pairs[4] = 1, 0
    reference = torch.rand(targets.shape, generator=generator) * (targets != -100) - 6.0
    ends = torch.tensor([[[2, 5], [8, 11]]]).repeat(SEQUENCES, 1, 1)
    ends[1, 1], ends[4] = 0, 0
    return {"tokens": tokens[:, :-1].clone(), "targets": targets, "documents": documents, "pairs": pairs} | {
        "reference": torch.where(targets != -100, reference, 0),
        "ends": ends,
    }
