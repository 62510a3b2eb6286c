"""What a student's logits cost, held against those of a teacher: a chunk of tokens at a time.

Shape legend: ``rows`` (tokens with or without a target), ``width`` (the teacher's own), ``vocabulary``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from trainwright.model.losses import IGNORE, Gradients, Head, add_gradients


@dataclass(kw_only=True, slots=True)
class Lesson:
    """Of some tokens what the teacher says and what follows them; as a ``ChunkLoss`` it takes numbers of its rows.

    The loss of a target is ``alpha T^2 KL(p || q) + (1 - alpha) CE`` in nats (Hinton et al., 2015, arXiv 1503.02531,
    section 2), where p and q are softmaxes of the teacher's and of the student's logits, divided by the temperature T,
    and CE is the student's cross-entropy at temperature 1. The factor T^2 keeps gradients as large whatever T is.

    Attributes:
        taught: the teacher's hidden states, as its head multiplies them.
        head: the teacher's, with as many entries as the student's.
        targets: what follows each row; ``IGNORE`` counts for nothing.
        temperature: T, above 0.
        alpha: share of the teacher, 0 to 1.
        cross_entropy: summed CE of the chunks so far.
        divergence: summed KL(p || q) of them, without T^2.
    """

    taught: Float[Tensor, "rows width"]
    head: Head
    targets: Int[Tensor, " rows"]
    temperature: float
    alpha: float
    cross_entropy: Tensor | float = field(default=0.0, init=False)
    divergence: Tensor | float = field(default=0.0, init=False)

    @property
    def rows(self) -> Int[Tensor, " rows"]:
        """Returns the number of each row whose target counts, ``IGNORE`` of the others: targets of the head's loss."""
        numbers = torch.arange(len(self.targets), device=self.targets.device)
        return torch.where(self.targets == IGNORE, IGNORE, numbers)

    def __call__(self, part: Tensor, head: Head, rows: Tensor, grads: Gradients | None) -> Tensor:
        """Returns the summed loss of a chunk; its gradients go into ``grads``."""
        temperature, counts = self.temperature, rows != IGNORE
        index = rows.clamp_min(0)
        target = torch.where(counts, self.targets[index], IGNORE)
        logits = head.logits(part)
        own = F.log_softmax(logits, dim=-1)
        softened = own if temperature == 1 else F.log_softmax(logits / temperature, dim=-1)
        theirs = F.log_softmax(self.head.logits(self.taught[index]).to(logits.dtype) / temperature, dim=-1)
        divergences = F.kl_div(softened, theirs, reduction="none", log_target=True).sum(dim=-1)
        divergence = (divergences * counts).sum()
        cross_entropy = F.nll_loss(own, target, ignore_index=IGNORE, reduction="sum")
        self.divergence, self.cross_entropy = self.divergence + divergence, self.cross_entropy + cross_entropy
        if grads is not None:
            # T^2 KL changes with a logit by T (q - p), and CE by softmax - onehot.
            grad = softened.exp().sub_(theirs.exp_()).mul_(self.alpha * temperature)
            hard = target.clamp_min(0).unsqueeze(1)
            hard_grad = own.exp_().scatter_add_(1, hard, -torch.ones_like(hard, dtype=own.dtype))
            grad.add_(hard_grad, alpha=1 - self.alpha)
            add_gradients(head.uncapped(grad, logits), part, head.weight, target, grads)
        return self.alpha * temperature**2 * divergence + (1 - self.alpha) * cross_entropy
