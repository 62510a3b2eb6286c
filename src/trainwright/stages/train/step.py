"""One optimizer update: micro batches, one denominator, clip, update; each stage of it on the clock.

Shape legend: ``batch`` (sequences of the whole update), ``seq`` (tokens of one sequence).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trainwright.model.attention import document_ids, document_positions
from trainwright.model.decoder import Decoder
from trainwright.model.losses import IGNORE, linear_cross_entropy
from trainwright.runtime.clock import PhaseClock
from trainwright.stages.train.optimizer import Optimizers, clip

Loss = tuple[Float[Tensor, ""], Int[Tensor, ""]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Update:
    """What one update saw: summed loss in nats over ``targets`` targets, and the gradient norm before clipping."""

    loss_sum: Tensor
    targets: Tensor
    grad_norm: Tensor


class TrainingStep:
    """Gradient of the mean loss over a whole batch, whatever the micro batches, then one update."""

    def __init__(
        self,
        model: Decoder,
        optimizers: Optimizers,
        clock: PhaseClock,
        *,
        micro_batch: int,
        end_of_text: int | None,
        clip_norm: float | None,
        compiled: bool,
        device: torch.device,
    ) -> None:
        """Bind what a step works on.

        Args:
            model: the network, on ``device``.
            optimizers: over its parameters.
            clock: started; every moment of a step is one of its phases.
            micro_batch: sequences of one forward pass.
            end_of_text: where given, documents are kept apart at this token.
            clip_norm: largest gradient norm, or None.
            compiled: run the forward and backward passes through ``torch.compile``.
            device: where the model is.
        """
        self.model = model
        self.parameters = list(model.parameters())
        self.optimizers = optimizers
        self.clock = clock
        self.micro_batch = micro_batch
        self.end_of_text = end_of_text
        self.clip_norm = clip_norm
        self.device = device
        self._network: Callable[..., Tensor] = torch.compile(model) if compiled else model

    def __call__(self, tokens: Int[Tensor, "batch seq_plus_one"], share: float) -> Update:
        """Train on one batch with ``share`` of the peak learning rate."""
        with self.clock.phase("host_to_device"):
            tokens = tokens.to(self.device, non_blocking=True)
        loss_sum, targets = self.gradient(tokens)
        with self.clock.phase("update"):
            grad_norm = clip(self.parameters, self.clip_norm)
            self.optimizers.step(share)
            self.optimizers.zero_grad()
        return Update(loss_sum=loss_sum, targets=targets, grad_norm=grad_norm)

    def gradient(self, tokens: Int[Tensor, "batch seq_plus_one"]) -> Loss:
        """Accumulate the gradient of the batch's mean loss into ``.grad``; the summed loss and its targets."""
        with self.clock.phase("preprocess"):
            denominator = (tokens[:, 1:] != IGNORE).sum().clamp_min(1)
        total = torch.zeros((), device=self.device)
        for micro in tokens.split(self.micro_batch):
            with self.clock.phase("forward"):
                part, _ = self.loss(micro)
            with self.clock.phase("backward"):
                (part / denominator).backward()
            total += part.detach()
        return total, denominator

    def loss(self, tokens: Int[Tensor, "batch seq_plus_one"]) -> Loss:
        """Summed loss of one micro batch and the number of its targets."""
        hidden = self.hidden(tokens[:, :-1])
        return linear_cross_entropy(hidden.flatten(0, 1), self.model.head_weight, tokens[:, 1:].flatten())

    def hidden(self, inputs: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq width"]:
        """Hidden states of one micro batch, documents kept apart where that is asked for."""
        documents = positions = None
        if self.end_of_text is not None:
            with self.clock.phase("preprocess"):
                documents = document_ids(inputs, self.end_of_text)
                positions = document_positions(documents) if self.model.positions is not None else None
        return self._network(inputs.clamp_min(0), positions=positions, documents=documents)
