"""``Experts``: a mixture of experts in place of the feed-forward."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from trainwright.core.frozen import dataclass

Scores = Literal["softmax", "sigmoid"]
Balance = Literal["loss", "bias"]
"""How a router is kept from sending everything to few experts: by an auxiliary loss (Fedus et al., 2021, arXiv
2101.03961, section 2.2), or by a bias on each expert's score that follows its load (Wang et al., 2024, arXiv
2408.15664)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Experts:
    """A mixture of experts in place of the feed-forward: ``active`` of ``count`` experts see each token.

    ``ffn_width`` is one routed expert's; ``shared_ffn_width`` is what every token passes beside them (0: none). The
    first ``dense_layers`` layers keep the model's own feed-forward. Of ``groups`` groups of neighbouring experts a
    token is sent to ``active_groups`` at most, which bounds the nodes that it goes to (DeepSeek-V2's device-limited and
    DeepSeek-V3's node-limited routing: arXiv 2405.04434, section 2.2.2; arXiv 2412.19437, section 2.1.2).
    """

    count: int
    active: int
    ffn_width: int
    shared_ffn_width: int = 0
    dense_layers: int = 0
    router_bias: bool = False
    bias: bool = False
    shared_gate: bool = False
    groups: int = 1
    active_groups: int = 1
    balance: Balance = "loss"
    dense: tuple[int, ...] | None = None
    """The ``dense_layers`` layers without experts, where they are not the first (Qwen)."""
    scores: Scores = "softmax"
    """Of all experts together, or of each alone (DeepSeek-V3)."""
    normalised: bool = True
    """The weights of a token's experts sum to one, before ``scale``; of softmax they are then that of the chosen."""
    scale: float = 1.0
    """What the weights of routed experts are multiplied by."""
    group_best: int = 2
    """A group's score is the sum of so many of its best (DeepSeek-V3: two; V2: one)."""
    limit: float | None = None
    """Where experts' activation is clamped, and is gpt-oss's; None: SwiGLU."""
    steepness: float = 1.702
    """What the gate is multiplied by in the sigmoid of that activation."""
    loss_weight: float = 0.001
    """Weight of the balance loss of each sequence in training (``model.experts.balance``)."""
    z_weight: float = 0.0
    """Weight of the loss of the router's large logits in training."""
    bias_rate: float = 0.001
    """What an update adds to or takes from an expert's bias, where it balances (DeepSeek-V3: 0.001)."""

    @property
    def body(self) -> Experts:
        """Returns the same experts without what is about training alone."""
        return replace(self, loss_weight=0.0, z_weight=0.0, bias_rate=0.0)

    def mixes(self, layer: int) -> bool:
        """Returns whether a layer, counted from 0, has experts."""
        return layer >= self.dense_layers if self.dense is None else layer not in self.dense

    def problems(self, *, layers: int) -> tuple[str, ...]:
        """Returns every reason why no network of so many layers has these experts."""
        problems = [
            f"experts.{name} must be at least 1, seen {getattr(self, name)}, and below a million"
            for name in ("count", "active", "ffn_width")
            if not 1 <= getattr(self, name) < 1_000_000
        ]
        if self.active > self.count:
            problems.append(f"experts.active ({self.active}) exceeds experts.count ({self.count})")
        if self.groups < 1 or self.count % max(1, self.groups):
            problems.append(f"experts.count ({self.count}) must be a multiple of experts.groups ({self.groups})")
        elif not 1 <= self.active_groups <= self.groups:
            problems.append(
                f"experts.active_groups must be 1 to experts.groups ({self.groups}), seen {self.active_groups}"
            )
        elif self.active > self.count // self.groups * self.active_groups:
            problems.append(
                f"experts.active ({self.active}) exceeds the experts of {self.active_groups} of {self.groups} groups"
            )
        problems.extend(
            f"experts.{name} must be at least 0, seen {getattr(self, name)}"
            for name in ("loss_weight", "z_weight")
            if getattr(self, name) < 0
        )
        if self.dense is not None and not (
            len(set(self.dense)) == self.dense_layers and set(self.dense) <= set(range(layers))
        ):
            problems.append(f"experts.dense must name {self.dense_layers} layers of {layers}, seen {self.dense}")
        if not 0 <= self.dense_layers < layers:
            problems.append(f"experts.dense_layers must be below layers ({layers}), seen {self.dense_layers}")
        return tuple(problems)
