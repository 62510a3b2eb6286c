"""``model.mup``: rates and first weights that were found at one width, for another one; constants alone, no torch.

Maximal update parametrisation (Yang and Hu et al., 2022, Tensor Programs V, arXiv 2203.03466), in the form of its table
8, which lets embedding and head be one: with m times the width of the base, matrices inside blocks begin with 1/m of
the variance and have 1/m of the rate, logits are divided by m, and scores by the size of a head in place of its root.
Embeddings, biases and norms stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from trainwright.spec.model import ModelSpec
from trainwright.spec.sections.base import Section
from trainwright.spec.sections.task import TaskSection
from trainwright.spec.sections.train import TrainSection
from trainwright.spec.sections.updates.optimizer import AdamSection

FAMILIES = (
    *("llama", "granite", "mistral", "qwen2", "qwen3", "phi3"),
    *("gpt2", "gpt_neox", "opt", "phi", "starcoder2"),
)
"""Those whose parts are all in the table, and whose own constants do not depend on the width."""
OPTIMIZERS = ("adamw", "adam")


class MupSection(Section):
    """The width that rates and first weights are of; each follows the model's width from there (muP)."""

    base_width: int = Field(gt=0, description="model.width that the recipe's rates were found at")
    base_head_size: int | None = Field(
        None, gt=0, description="size of one head there; default: this model's, which has more heads"
    )

    def ratio(self, width: int) -> float:
        """Returns how many times as wide as the base a model is."""
        return width / self.base_width

    def refusal(self, task: TaskSection, train: TrainSection) -> str | None:
        """Returns why a task or a training cannot follow the width, or None."""
        if task.outputs:
            return f"it scales logits over the vocabulary, and the task {task.name} has another head"
        if train.method.adapts:
            return "adapters have rates of their own, which do not follow the width of what they are beside"
        if (optimizer := train.optimizer).name not in OPTIMIZERS:
            return f"train.optimizer.name={optimizer.name} has other rules of width than {' and '.join(OPTIMIZERS)}"
        of_group = any(group.weight_decay for group in optimizer.groups)
        if (isinstance(optimizer, AdamSection) and (optimizer.weight_decay or of_group)) or train.loss.penalises:
            return "a penalty in the gradient does not follow the width: use the weight_decay of adamw in its place"
        return None

    def widened(self, spec: ModelSpec) -> ModelSpec:
        """Returns a shape whose scores and logits are scaled for its width; its constants are those of the base."""
        scales, base_size = spec.scales, self.base_head_size or spec.head_size
        attention = scales.attention
        if base_size != spec.head_size:
            of_base = base_size**-0.5 if attention is None else attention
            attention = of_base * base_size / spec.head_size
        divisor = scales.logits_divisor * self.ratio(spec.width)
        return replace(spec, scales=replace(scales, attention=attention, logits_divisor=divisor))
