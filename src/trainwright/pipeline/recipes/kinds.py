"""The kinds of recipe that ``trainwright init`` writes: a new one is an entry of ``KINDS``.

What a kind's data and networks must be follows from its task (``spec/sections/task.py``). Rates are those of its
sources; for networks below ``SMALL_PARAMETERS`` those that our own recipes were measured with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.core.frozen import dataclass

SMALL = "small"
"""The name of a kind's own network, which begins with random weights."""
SMALL_PARAMETERS = 20_000_000

DECODER = {"family": "llama", "layers": 4, "width": 192, "heads": 2, "ffn_width": 512, "tied": False}
"""As in recipes/quickstart.yaml."""
ENCODER = {"family": "bert", "layers": 4, "width": 128, "heads": 4}
VISION = {"family": "vit", "layers": 4, "width": 64, "heads": 4}
"""As in recipes/vit-digits.yaml."""
LORA = {"name": "lora", "rank": 16, "alpha": 32}
QUICKSTART = {
    "sequence_tokens": 256,
    "batch_tokens": 2048,
    "duration": "1600 steps",
    "optimizer": {"name": "muon", "muon_lr": 0.02, "lr": 0.015, "embedding_lr": 0.1, "weight_decay": 0},
    "schedule": {"name": "linear", "warmup": "20 steps", "final_ratio": 0},
}
"""How recipes/quickstart.yaml trains its network (docs/lab/log.md)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """What a recipe of a kind has, before its model and its data are known.

    Attributes:
        says: what it does, in a line.
        file: what its recipe is called.
        task: the ``task`` section, without labels.
        small: the network that is trained where no model is named; None: it needs one.
        from_base: a model of the catalogue stands for its weights, in a folder of that name; else for its shape alone,
            and weights are random.
        rates: peak rates of the network that is small, and of others; None: by the size of the network.
        duration: of the training, where ``small_train`` does not say it.
        sequences: of an update.
        method: the ``train.method`` section; None: all weights are trained.
        small_train: keys of ``train`` for its own small network, in place of all of these.
    """

    says: str
    file: str
    task: Mapping[str, Any]
    small: Mapping[str, Any] | None = None
    from_base: bool = True
    rates: tuple[float, float] | None = None
    duration: str = "3 epochs"
    sequences: int = 16
    method: Mapping[str, Any] | None = None
    small_train: Mapping[str, Any] | None = None

    @property
    def needs_base(self) -> bool:
        """Returns whether there is no training of this kind without the weights of a model."""
        return self.from_base and self.small is None


KINDS: Mapping[str, Kind] = {
    "pretrain": Kind(
        says="train a language model from the start, on texts",
        file="pretrain.yaml",
        task={"name": "next-token"},
        small=DECODER,
        from_base=False,
        duration="20 tok/param",  # Hoffmann et al., 2022 (Chinchilla)
        sequences=512,
        small_train=QUICKSTART,
    ),
    "continue": Kind(
        says="go on training a model, on texts of your own",
        file="continue.yaml",
        task={"name": "next-token"},
        rates=(1e-3, 5e-5),
        duration="1 epochs",
        sequences=64,
    ),
    "fill-gaps": Kind(
        says="train an encoder from the start to fill gaps, on texts",
        file="fill-gaps.yaml",
        task={"name": "masked"},
        small=ENCODER,
        from_base=False,
        rates=(1e-3, 1e-4),  # Devlin et al., 2019, appendix A.2
        duration="3 epochs",
        sequences=64,
    ),
    "chat": Kind(
        says="teach a model to answer in chats, all of its weights",
        file="finetune.yaml",
        task={"name": "chat"},
        rates=(1e-3, 1e-5),
    ),
    "chat-lora": Kind(
        says="teach a model to answer in chats, by LoRA: small matrices beside frozen weights",
        file="finetune.yaml",
        task={"name": "chat"},
        rates=(3e-3, 2e-4),  # recipes/llama-chat-lora.yaml; Dettmers et al., 2023 (QLoRA), table 9
        method=LORA,
    ),
    "chat-qlora": Kind(
        says="teach a model to answer in chats, by LoRA beside weights that are kept in 4 bits",
        file="finetune.yaml",
        task={"name": "chat"},
        rates=(3e-3, 2e-4),  # recipes/llama-chat-qlora.yaml; Dettmers et al., 2023 (QLoRA), table 9
        method={**LORA, "frozen": "nf4"},
    ),
    "preference": Kind(
        says="make a model prefer one of two answers (DPO), by LoRA",
        file="preference.yaml",
        task={"name": "preference", "loss": "dpo", "beta": 0.1},
        rates=(2e-3, 5e-6),  # recipes/dpo-tiny.yaml
        duration="1 epochs",
        method=LORA,
    ),
    "classify": Kind(
        says="tell which class a text is of",
        file="classify.yaml",
        task={"name": "classify"},
        small=ENCODER,
        rates=(1e-3, 3e-5),  # Devlin et al., 2019, appendix A.3
        duration="4 epochs",
        sequences=32,
        small_train={"duration": "10 epochs"},
    ),
    "classify-images": Kind(
        says="tell which class an image is of",
        file="images.yaml",
        task={"name": "classify-images"},
        small=VISION,
        rates=(3e-3, 1e-4),
        duration="10 epochs",
        sequences=64,
        small_train={
            "duration": "40 epochs",
            "optimizer": {"name": "muon", "muon_lr": 0.02, "lr": 3e-3, "weight_decay": 0.1},
        },
    ),
}

_RATES = (
    (2e8, 6e-4),
    (5e8, 3e-4),
    (1e9, 2.5e-4),
    (2e9, 2e-4),
    (4e9, 1.6e-4),
    (1e10, 1.2e-4),
    (5e10, 1e-4),
)
"""Parameters and peak rates from the start: Brown et al., 2020 (GPT-3), table 2.1, between its sizes."""


def rate_of(kind: Kind, parameters: int) -> float:
    """Returns the peak rate of AdamW for a network of so many parameters."""
    if kind.rates is not None:
        return kind.rates[parameters >= SMALL_PARAMETERS]
    return next((rate for most, rate in _RATES if parameters <= most), 6e-5)
