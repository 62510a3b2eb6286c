"""``ModelSpec``: the shape of a transformer, enough to count its parameters and to build it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

from trainwright.core.frozen import dataclass
from trainwright.core.registry import is_reference
from trainwright.spec.parts.convolutions import Convolutions
from trainwright.spec.parts.dropout import NO_DROPOUT, Dropout
from trainwright.spec.parts.experts import Experts
from trainwright.spec.parts.latent import LatentAttention
from trainwright.spec.parts.rotary import RopeScaling
from trainwright.spec.parts.scales import NO_SCALES, Scales

Norm = Literal["rmsnorm", "layernorm"]
Positions = Literal["rope", "learned", "alibi", "none"]
Activation = Literal["silu", "gelu_tanh", "gelu", "relu"]
Unit = Literal["tokens", "images"]
ModelKind = Literal["decoder", "encoder", "vision"]
Pooling = Literal["first", "mean"]

FAMILIES: Mapping[str, str] = {
    "llama": "trainwright.spec.families.llama:FAMILY",
    "gpt2": "trainwright.spec.families.gpt2:FAMILY",
    "vit": "trainwright.spec.families.vit:FAMILY",
    "resnet": "trainwright.spec.families.resnet:FAMILY",
    "mistral": "trainwright.spec.families.rmsnorm:MISTRAL",
    "qwen2": "trainwright.spec.families.rmsnorm:QWEN2",
    "qwen3": "trainwright.spec.families.rmsnorm:QWEN3",
    "phi3": "trainwright.spec.families.rmsnorm:PHI3",
    "granite": "trainwright.spec.families.rmsnorm:GRANITE",
    "gemma": "trainwright.spec.families.rmsnorm:GEMMA",
    "gemma2": "trainwright.spec.families.rmsnorm:GEMMA2",
    "gemma3_text": "trainwright.spec.families.rmsnorm:GEMMA3_TEXT",
    "bloom": "trainwright.spec.families.layernorm:BLOOM",
    "falcon": "trainwright.spec.families.layernorm:FALCON",
    "gpt_neox": "trainwright.spec.families.layernorm:GPT_NEOX",
    "mpt": "trainwright.spec.families.layernorm:MPT",
    "opt": "trainwright.spec.families.layernorm:OPT",
    "phi": "trainwright.spec.families.layernorm:PHI",
    "starcoder2": "trainwright.spec.families.layernorm:STARCODER2",
    "bert": "trainwright.spec.families.encoders:BERT",
    "modernbert": "trainwright.spec.families.modernbert:MODERNBERT",
    "roberta": "trainwright.spec.families.encoders:ROBERTA",
    "deepseek_v2": "trainwright.spec.families.mixtures:DEEPSEEK_V2",
    "deepseek_v3": "trainwright.spec.families.mixtures:DEEPSEEK_V3",
    "glm4_moe": "trainwright.spec.families.mixtures:GLM4_MOE",
    "gpt_oss": "trainwright.spec.families.mixtures:GPT_OSS",
    "kimi_k2": "trainwright.spec.families.mixtures:KIMI_K2",
    "mixtral": "trainwright.spec.families.mixtures:MIXTRAL",
    "qwen2_moe": "trainwright.spec.families.mixtures:QWEN2_MOE",
    "qwen3_moe": "trainwright.spec.families.mixtures:QWEN3_MOE",
}
"""Families that are built here, each with its ``Family`` (``spec/families/family.py``)."""
PLANNED_FAMILIES: tuple[str, ...] = (*FAMILIES, "transformer")
"""Families whose parameters and operations the planner counts; ``transformer`` is a shape given by its numbers."""


HEAD_FIELDS = ("classes", "labels", "language_head", "head_bias", "pooler", "pooling", "token_classes")
"""Fields of ``ModelSpec`` that describe the head alone."""

MOST_LAYERS = 10_000  # The deepest transformer that was trained has 1,000 (DeepNet, arXiv 2203.00555).
MOST_OF_A_SIZE = 10**9  # Of any other, a thousand times the largest vocabulary; of a context memory is the bound.


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """A transformer: decoder, encoder, or vision encoder; or, with ``convolutions``, a ResNet.

    ``layers`` blocks of width ``width``; ``heads`` query heads and ``kv_heads`` key/value heads of ``head_size``;
    a feed-forward of ``ffn_width``, gated (three matrices) or plain (two); ``vocabulary`` rows of embedding,
    shared with the output head when ``tied``; at most ``context_tokens`` positions.
    """

    unit: ClassVar[Unit] = "tokens"
    """What it is trained on, counted one by one: an image is a sequence of tokens here."""
    is_divisible: ClassVar[bool] = True
    """Layers and matrices can be divided over ranks."""

    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    ffn_width: int
    vocabulary: int
    context_tokens: int
    tied: bool
    gated: bool
    norm: Norm
    norm_epsilon: float
    positions: Positions
    rope_theta: float
    bias: bool
    activation: Activation
    kind: ModelKind = "decoder"
    qkv_bias: bool | None = None
    """Biases of queries, keys and values where they differ from ``bias`` (Qwen2)."""
    output_bias: bool | None = None
    """Bias of attention's output where it differs from ``bias``."""
    head_bias: bool = False
    """Bias of the language head (Phi, BERT)."""
    norm_bias: bool = True
    """LayerNorm's own bias (MPT: none); RMSNorm has none."""
    parallel_residual: bool = False
    """Attention and feed-forward read the same stream, and what both make is added to it at once (GPT-NeoX)."""
    norms_per_block: int = 2
    """One where attention and feed-forward share it (Phi), four where each has one behind it too (Gemma 2)."""
    post_norm: bool = False
    """Norms stand behind each half of a block, over its sum with the stream, not before it (BERT)."""
    embedding_norm: bool = False
    first_norm: bool = True
    """The first layer's attention has a norm; without one it reads what the embedding's returns (ModernBERT)."""
    final_norm: bool = True
    qk_norm: bool = False
    """Each head's queries and keys are normalised."""
    sinks: bool = False
    """One learned logit per head in the softmax (gpt-oss)."""
    window_tokens: int | None = None
    """Sliding-window attention in ``window_layers`` layers, half to each side in an encoder; None: whole context."""
    window_layers: tuple[int, ...] | None = None
    """Numbers of the layers with the window, from 0; None: all."""
    experts: Experts | None = None
    latent: LatentAttention | None = None
    further_layers: int = 0
    """Blocks behind the last one that predict tokens after the next in training, each with a projection of its own;
    embedding and head are shared (multi-token prediction: DeepSeek-V3, arXiv 2412.19437, section 2.2)."""
    extra_positions: int = 0
    """Rows of the position table beyond ``context_tokens`` (OPT: 2)."""
    segments: int = 0
    """Rows of a token-type embedding (BERT: 2)."""
    pooler: bool = False
    """A square layer over the first token, before the classes; ModernBERT's is over their mean too (``pooling``)."""
    pooling: Pooling = "first"
    head_transform: bool = False
    """Pooler and classes of tokens are what stands before an encoder's logits: Linear, GELU, norm (ModernBERT)."""
    classes: int = 0
    """Outputs of a classification head: over the first token (pooler, vision), a decoder's last one, or every token."""
    token_classes: bool = False
    """A decoder's classes are told of every token, by a head with a bias; an encoder's are where it has no pooler."""
    labels: tuple[str, ...] | None = None
    """What each class is called, in the head's order; None where nobody said."""
    language_head: bool | None = None
    """Whether logits over the vocabulary are made; None: where there are no classes."""
    image_size: int = 0
    patch_size: int = 0
    convolutions: Convolutions | None = None
    """Stages of a convolutional network: ``layers`` and ``width`` are their blocks and the last one's channels, an
    image is one token, and sizes of attention and feed-forward are 1 and stand for nothing."""
    dropout: Dropout = NO_DROPOUT
    rotary_share: float = 1.0
    """Share of a head's elements that rotary positions turn, the first of them (GPT-NeoX: 0.25)."""
    rope_scaling: RopeScaling | None = None
    window_rope_theta: float | None = None
    """Rotary base of windowed layers, which are not scaled then (Gemma 3); None: that of all."""
    norm_offset: float = 0.0
    """Added to the weights of norms where they multiply (Gemma: 1)."""
    scales: Scales = NO_SCALES
    score_cap: float | None = None
    """Soft bound c of attention's scores: c tanh(score / c) (Gemma 2, arXiv 2408.00118, section 2)."""
    logit_cap: float | None = None
    """The same of the logits over the vocabulary."""

    @property
    def makes_scores(self) -> bool:
        """Returns whether attention computes with whole scores, which no fused kernel gives."""
        return self.score_cap is not None or self.sinks

    @property
    def qkv_biased(self) -> bool:
        """Returns whether queries, keys and values have biases."""
        return self.bias if self.qkv_bias is None else self.qkv_bias

    @property
    def output_biased(self) -> bool:
        """Returns whether attention's output has a bias."""
        return self.bias if self.output_bias is None else self.output_bias

    @property
    def makes_logits(self) -> bool:
        """Returns whether there are logits over the vocabulary."""
        return self.language_head if self.language_head is not None else not self.classes

    @property
    def transforms(self) -> bool:
        """Returns whether a square layer with a norm stands before the head."""
        return self.kind == "encoder" and (self.makes_logits or (self.head_transform and self.classes > 0))

    @property
    def blocks(self) -> int:
        """Layers, and those that predict further tokens."""
        return self.layers + self.further_layers

    @property
    def moe_layers(self) -> int:
        """Blocks whose feed-forward is a mixture of experts."""
        return 0 if self.experts is None else self.blocks - self.experts.dense_layers

    @property
    def tells_tokens(self) -> bool:
        """Returns whether its classes are told of every token."""
        return self.token_classes or (self.kind == "encoder" and bool(self.classes) and not self.pooler)

    @property
    def writes_text(self) -> bool:
        """Returns whether it continues texts: an encoder's logits are of tokens that it sees both sides of."""
        return self.kind == "decoder" and self.makes_logits

    def mixes(self, layer: int) -> bool:
        """Returns whether a layer's feed-forward is a mixture of experts."""
        return self.experts is not None and self.experts.mixes(layer)

    def deployed(self) -> ModelSpec:
        """Returns the model as it is used: without what only training needs."""
        return replace(self, further_layers=0) if self.further_layers else self

    @property
    def windowed_layers(self) -> int:
        """Layers whose attention sees a sliding window."""
        if self.window_tokens is None:
            return 0
        return self.blocks if self.window_layers is None else len(self.window_layers)

    def window_of(self, layer: int) -> int | None:
        """Returns the tokens that a layer's attention sees, the newest of them its own; None: all earlier ones."""
        return self.window_tokens if self.window_layers is None or layer in self.window_layers else None

    @property
    def rotated_size(self) -> int:
        """Elements of a head that rotary positions turn."""
        return int(self.head_size * self.rotary_share) if self.latent is None else self.latent.rope_size

    @property
    def score_size(self) -> int:
        """Elements of one head's query and key."""
        return self.head_size + (0 if self.latent is None else self.latent.rope_size)

    @property
    def value_size(self) -> int:
        """Elements of one head's value."""
        return self.head_size if self.latent is None else self.latent.value_size

    @property
    def sees_images(self) -> bool:
        """Returns whether its input is images."""
        return self.kind == "vision"

    @property
    def batch_unit(self) -> Unit:
        """Returns what people count a step's batch in: images where it sees them."""
        return "images" if self.sees_images else self.unit

    @property
    def batch_unit_tokens(self) -> int:
        """Returns the tokens of one of them."""
        return self.context_tokens if self.sees_images else 1

    def body_differences(self, base: ModelSpec) -> tuple[str, ...]:
        """Returns the names of the fields that keep the embedding and blocks of ``base`` from fitting this shape.

        The head is left out: a task may put another one on the same blocks. So are rates of dropout and weights of
        balance losses: they fit any.
        """
        names = (name for name in self.__dataclass_fields__ if name not in (*HEAD_FIELDS, "dropout"))
        return tuple(name for name in names if self.body_part(name) != base.body_part(name))

    def body_part(self, name: str) -> object:
        """Returns what weights must fit of a field: what is left to its default as what it means."""
        meant = {"qkv_bias": self.qkv_biased, "output_bias": self.output_biased}
        value = meant.get(name, getattr(self, name))
        if name == "window_rope_theta" and value == self.rope_theta and self.rope_scaling is None:
            return None  # as all layers have it
        return value.body if isinstance(value, Experts) else value

    def has_head_of(self, other: ModelSpec) -> bool:
        """Returns whether what stands on the blocks is the same, what its outputs are told as, too."""
        return all(getattr(self, name) == getattr(other, name) for name in HEAD_FIELDS)

    def problems(self) -> tuple[str, ...]:
        """Returns every reason why no such network can be built; empty where there is none."""
        sizes = ["layers", "width", "heads", "kv_heads", "head_size", "ffn_width", "context_tokens"]
        patches = [] if self.convolutions else ["patch_size"]
        sizes += ["image_size", *patches, "classes"] if self.kind == "vision" else ["vocabulary"]
        seen = {name: getattr(self, name) for name in sizes}
        if problems := [f"{name} must be at least 1, seen {size}" for name, size in seen.items() if size < 1]:
            return tuple(problems)
        most = dict.fromkeys(sizes, MOST_OF_A_SIZE) | {"layers": MOST_LAYERS}
        large = (name for name in sizes if name != "context_tokens" and seen[name] > most[name])
        problems = [f"{name} must be at most {most[name]:,}, seen {seen[name]:,}" for name in large]
        if self.family not in PLANNED_FAMILIES and not is_reference(self.family):
            problems.append(f"unknown family {self.family!r}, expected one of {', '.join(PLANNED_FAMILIES)}")
        if self.heads % self.kv_heads:
            problems.append(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        if self.pooling == "mean" and not self.head_transform:
            problems.append(f"pooling=mean is of ModernBERT's heads alone, seen family {self.family}")
        if self.norms_per_block == 1 and not self.parallel_residual:
            problems.append("norms_per_block=1 is shared by two halves side by side: it needs parallel_residual")
        if self.kind == "vision" and self.patch_size and self.image_size % self.patch_size:
            problems.append(f"image_size ({self.image_size}) must be a multiple of patch_size ({self.patch_size})")
        if self.labels is not None and len(self.labels) != self.classes:
            problems.append(f"labels must name each of the {self.classes} classes, seen {len(self.labels)} names")
        if self.further_layers < 0:
            problems.append(f"further_layers must be at least 0, seen {self.further_layers}")
        return (
            *problems,
            *self._attention_problems(),
            *(() if self.convolutions is None else self.convolutions.all_problems(self.layers, self.width)),
            *(() if self.experts is None else self.experts.problems(layers=self.layers)),
        )

    def _attention_problems(self) -> tuple[str, ...]:
        """Returns every reason of positions, windows and scores."""
        problems = [
            f"{name} must be above 0, seen {getattr(self, name)}"
            for name in ("score_cap", "logit_cap", "window_rope_theta")
            if getattr(self, name) is not None and getattr(self, name) <= 0
        ]
        if not 0 < self.rotary_share <= 1:
            problems.append(f"rotary_share must be above 0 and at most 1, seen {self.rotary_share}")
        elif self.positions == "rope" and (self.rotated_size < 2 or self.rotated_size % 2):
            share = "" if self.rotary_share == 1 else f" times rotary_share {self.rotary_share}"
            problems.append(f"rotary positions need an even head_size, seen {self.head_size}{share}")
        if self.window_tokens is not None and self.window_tokens < 1:
            problems.append(f"window_tokens must be at least 1, seen {self.window_tokens}")
        if self.window_layers is not None and not set(self.window_layers) <= set(range(self.blocks)):
            problems.append(f"window_layers must be numbers below layers ({self.layers}), seen {self.window_layers}")
        return (
            *problems,
            *(() if self.rope_scaling is None else self.rope_scaling.problems(pairs=self.rotated_size // 2)),
        )
