"""Distillation of a language model: the next token, and what a frozen teacher says of it.

Shape legend: ``batch`` (sequences), ``seq`` (tokens of a sequence), ``width``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float
from torch import Tensor

from trainwright.artifact.shards import TokenDataset
from trainwright.model.attention import document_positions
from trainwright.model.losses import Head, Loss, linear_cross_entropy
from trainwright.model.network import Network
from trainwright.model.tasks.distillation.losses import Lesson
from trainwright.model.tasks.next_token import NextToken, next_token
from trainwright.model.tasks.task import Batch
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.tasks.keys import DistillSection


def distill(recipe: Recipe, dataset: TokenDataset) -> Distill:
    """Returns the task as a recipe asks for it, whose teacher is not there yet."""
    assert isinstance(recipe.task, DistillSection)
    plain = next_token(recipe, dataset)
    return Distill(sequence_tokens=plain.sequence_tokens, end_of_text=plain.end_of_text, how=recipe.task)


@dataclass(frozen=True, kw_only=True, slots=True)
class Distill(NextToken):
    """The loss of ``Lesson`` of each token after the first of a window; its evaluation is the student's cross-entropy.

    ``teacher`` computes without dropout and is never trained; None: what is measured needs none, and a step without
    one costs the cross-entropy alone, for its shapes (a dry run). ``parts`` are sums since ``told`` was last asked.
    """

    how: DistillSection
    teacher: Network | None = None
    parts: dict[str, Tensor] = field(default_factory=dict)

    def taught_by(self, teacher: Network) -> Distill:
        """Returns the task with its teacher, frozen, on the device of the network that learns."""
        return replace(self, teacher=teacher.eval().requires_grad_(False), parts={})

    def inputs(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        """Returns those of ``NextToken``, and ``whole``: the tokens that the teacher reads, ``[batch, seq]``."""
        inputs = NextToken.inputs(self, network, batch)
        return inputs | {"whole": inputs["tokens"]}

    def loss(self, network: Network, hidden: Float[Tensor, "batch seq width"], inputs: Batch) -> Loss:
        """Returns the summed loss of the targets; what it is made of is added to ``parts``."""
        if self.teacher is None:
            return NextToken.loss(self, network, hidden, inputs)
        lesson = self._lesson(self.teacher, inputs)
        total, weight = linear_cross_entropy(
            network.head_input(hidden.flatten(0, 1)),
            network.head_weight,
            lesson.rows,
            bias=network.logit_bias,
            chunk=network.kernels.loss_chunk_tokens,
            chunk_loss=lesson,
            multiple=network.kernels.pad_vocabulary,
            cap=network.logit_cap,
        )
        for name, value in (("train/cross_entropy", lesson.cross_entropy), ("train/kl", lesson.divergence)):
            self.parts[name] = torch.as_tensor(value, dtype=total.dtype, device=total.device) + self.parts.get(name, 0)
        return total, weight

    @torch.no_grad()
    def _lesson(self, teacher: Network, inputs: Batch) -> Lesson:
        """Returns what the teacher says of a micro batch: it reads whole sequences, also where a rank has a part."""
        documents = inputs.get("documents")
        known = {} if documents is None else {"documents": documents}
        if documents is not None and teacher.has_position_table:
            known["positions"] = document_positions(documents)
        taught = teacher(inputs["whole"], **known)
        if "places" in inputs:
            taught = taught[:, inputs["places"]]
        taught = teacher.head_input(taught.flatten(0, 1))
        weight = teacher.head_weight.to(taught.dtype)
        return Lesson(
            taught=taught,
            head=Head(weight, weight.shape[0], teacher.logit_bias, teacher.logit_cap),
            targets=inputs["targets"].flatten(),
            temperature=self.how.temperature,
            alpha=self.how.alpha,
        )

    def told(self) -> Mapping[str, Float[Tensor, ""]]:
        """Returns the summed cross-entropy and divergence since it was last asked, by metric, and forgets them."""
        parts = dict(self.parts)
        self.parts.clear()
        return parts
