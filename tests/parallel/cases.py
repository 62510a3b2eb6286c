"""What is trained in every layout, and by how much it may differ from one process; no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainwright.spec.parts.experts import Experts
from trainwright.spec.parts.latent import LatentAttention
from trainwright.spec.parts.rotary import RopeScaling
from trainwright.spec.workload import AttentionKernel, ParallelPlan, Recompute, ReduceDtype

SEQUENCES, SEQUENCE_TOKENS, END_OF_TEXT = 7, 16, 1
"""Of a batch: no number of ranks or micro batches divides it."""
STEPS, SLOW_STEPS = 4, 2
"""Updates, of which the third has all that optimizers keep; and of flex_attention, slow without a kernel."""
TOLERANCES, REDUCED = {"fp64": 1e-10, "fp32": 1e-5, "fp16": 5e-3}, 1e-2
"""Relative: of a loss, a norm, a gradient to its own norm; where sums over ranks are in bf16, which rounds 4e-3."""
FLOOR = 1e-2
"""A tensor below this share of the whole is compared with that share: some are rounding alone (a key's bias)."""
AXES = {"dp_replicate", "dp_shard", "tp", "cp", "pp"}
LATER = 1e-8  # for weights after some steps of AdamW or Muon: what they divide by lets rounding grow


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training: ``layout`` are fields of ``ParallelPlan``, ``model`` fields of the tiny shape of a family."""

    layout: Mapping[str, object]
    family: str = "llama"
    model: Mapping[str, object] = field(default_factory=dict)
    dtype: str = "fp64"
    micro_batch: int = 3
    documents: bool = False
    ragged: bool = False
    dropout: bool = False
    ramp: bool = False  # a batch that grows
    chats: bool = False
    preference: str = ""  # pairs of answers with the loss dpo or orpo, or with rewards, or none
    taught: bool = False  # by a frozen teacher of another width
    whole: str = ""  # of a document: many labels, its number with the loss mse or mae, words (a label of each), embed
    terms: bool = False  # of train.loss: label smoothing, z-loss, L1 and L2
    recompute: Recompute = "none"
    optimizer: str = "sgd"
    reduce: ReduceDtype = "fp32"
    pad_vocabulary: int = 1  # in the layout; one process pads nothing
    adapter: str = ""  # what is trained beside frozen weights: lora, dora, qlora; or all weights are
    attention: AttentionKernel = "auto"  # in the layout; one process attends as usual
    steps: int = STEPS  # how many updates are compared

    @property
    def parallel(self) -> ParallelPlan:
        """The layout."""
        return ParallelPlan(**self.layout)

    @property
    def alone(self) -> Case:
        """What one process trains: the same for many layouts."""
        return replace(self, layout={}, pad_vocabulary=1, attention="auto")

    @property
    def tolerance(self) -> float:
        """By how much the first gradients may differ."""
        return TOLERANCES[self.dtype] if self.reduce == "fp32" else REDUCED

    @property
    def name(self) -> str:
        """The case in words."""
        words = [",".join(f"{axis}={size}" for axis, size in self.layout.items()), self.family, self.dtype]
        words += [f"micro={self.micro_batch}", self.optimizer, *(f"{key}={size}" for key, size in self.model.items())]
        usual = {"pad_vocabulary": 1, "recompute": "none", "attention": "auto", "reduce": "fp32"}
        words += [f"{key}={getattr(self, key)}" for key, value in usual.items() if getattr(self, key) != value]
        flags = ("documents", "ragged", "dropout", "ramp", "chats", "taught", "terms")
        words += [self.adapter, self.preference, self.whole, *(flag for flag in flags if getattr(self, flag))]
        return " ".join(filter(None, words))


DATA_LAYOUTS = (
    {"dp_replicate": 2},
    {"dp_shard": 2, "zero_stage": 1},
    {"dp_shard": 2, "zero_stage": 2},
    {"dp_shard": 2, "zero_stage": 3},
    {"dp_replicate": 2, "dp_shard": 2},
    {"dp_replicate": 2, "dp_shard": 2, "zero_stage": 2},
    {"dp_replicate": 4},
    {"dp_shard": 4},
)

PIPELINES = (
    {"pp": 2, "schedule": "gpipe"},
    {"pp": 2},
    {"pp": 2, "schedule": "interleaved", "virtual_stages": 2},
    {"pp": 2, "schedule": "zero_bubble"},
    {"pp": 2, "schedule": "dualpipe"},
    {"pp": 4},
    {"pp": 4, "schedule": "zero_bubble"},
    {"pp": 2, "dp_shard": 2, "zero_stage": 1},
    {"pp": 2, "dp_shard": 2, "zero_stage": 3},
    {"pp": 2, "dp_replicate": 2},
    {"pp": 2, "dp_shard": 2, "zero_stage": 1, "schedule": "zero_bubble"},
    {"pp": 2, "dp_shard": 2, "zero_stage": 3, "schedule": "interleaved", "virtual_stages": 2},
    {"pp": 2, "dp_shard": 2, "zero_stage": 1, "schedule": "dualpipe"},
    {"pp": 2, "dp_replicate": 2, "dp_shard": 2, "zero_stage": 1},
)
"""Of a model with four blocks, so that each stage has one at least."""

TENSORS: tuple[Mapping[str, object], ...] = (
    {"tp": 2},
    {"tp": 2, "sequence_parallel": False},
    {"tp": 4},
    {"tp": 2, "dp_replicate": 2},
    {"tp": 2, "dp_shard": 2, "zero_stage": 3},
    {"tp": 2, "dp_shard": 2, "zero_stage": 1, "sequence_parallel": False},
    {"tp": 2, "dp_shard": 2, "zero_stage": 2},
    {"tp": 2, "pp": 2},
    {"tp": 2, "pp": 2, "sequence_parallel": False, "schedule": "zero_bubble"},
    {"tp": 2, "pp": 2, "dp_shard": 2, "zero_stage": 1},
)
"""The heads of keys of a llama are two: four ranks keep copies of them."""

SETTINGS: tuple[dict[str, object], ...] = (
    {"family": "llama", "dtype": "fp64", "micro_batch": 3, "documents": True, "ragged": True},
    {"family": "gpt2", "dtype": "fp64", "micro_batch": 7, "documents": True},
    {"family": "llama", "dtype": "fp32", "micro_batch": 7, "ragged": True},
    {"family": "gpt2", "dtype": "fp32", "micro_batch": 3, "documents": True, "ragged": True},
    {"family": "llama", "dtype": "fp64", "micro_batch": 1, "model": {"tied": True}, "optimizer": "adamw"},
    {"family": "gpt2", "dtype": "fp64", "micro_batch": 3, "model": {"tied": False}, "optimizer": "muon"},
)
"""Every two of their values meet in one of them."""


def case(layout: Mapping[str, object], setting: Mapping[str, object], **model: object) -> Case:
    """Returns a layout in a setting; ``model`` are further fields of the shape."""
    return Case(layout=layout, **setting | {"model": setting.get("model", {}) | model})  # type: ignore[arg-type, operator]


def spread(layouts: tuple[Mapping[str, object], ...], **model: object) -> tuple[Case, ...]:
    """Returns cases in which each kind of layout meets every setting; the whole product is ``make soak``'s.

    A layout of one axis has two, of both families and one in fp64 at least; one of several axes has one.
    """
    return tuple(
        case(layout, SETTINGS[(place + shift) % len(SETTINGS)], **model)
        for place, layout in enumerate(layouts)
        for shift in (0, 3)[: 1 if len(AXES & layout.keys()) > 1 else 2]
    )


CONTEXTS = (
    Case(layout={"cp": 2}, documents=True, ragged=True, dropout=True),
    Case(layout={"cp": 2}, family="gpt2", dtype="fp32", micro_batch=7, documents=True),
    Case(layout={"cp": 2, "context": "ulysses"}, documents=True, ragged=True, dropout=True),
    Case(layout={"cp": 2, "context": "ulysses"}, family="gpt2", dtype="fp32", micro_batch=7, ragged=True),
    Case(layout={"cp": 2, "zero_stage": 1}, model={"tied": True}, micro_batch=1, optimizer="adamw"),
    Case(layout={"cp": 4}, family="gpt2", documents=True, ragged=True, dropout=True),
    Case(layout={"cp": 4}, recompute="full", documents=True, dropout=True),
    Case(layout={"cp": 4, "context": "ulysses"}, documents=True, ragged=True, optimizer="muon"),
    Case(layout={"cp": 2, "dp_replicate": 2}, family="gpt2", documents=True, dropout=True, optimizer="adamw"),
    Case(layout={"cp": 2, "dp_shard": 2, "zero_stage": 2}, documents=True, ragged=True, micro_batch=1),
    Case(layout={"cp": 2, "dp_shard": 2, "context": "ulysses"}, dtype="fp32", documents=True, ragged=True),
    Case(layout={"cp": 2, "dp_shard": 2}, recompute="selective", ragged=True, dropout=True),
    Case(layout={"cp": 2, "dp_replicate": 2, "zero_stage": 0}, documents=True, ragged=True),
    Case(layout={"cp": 2, "pp": 2, "zero_stage": 1}, documents=True, ragged=True, dropout=True),
    Case(layout={"cp": 2, "pp": 2, "context": "ulysses", "zero_stage": 1}, family="gpt2", ragged=True),
)
"""Of a llama with two key heads: with ``cp=4`` and ``ulysses`` they are fewer than the ranks."""

COMPOSED = (
    Case(layout={"tp": 2, "cp": 2}, documents=True, ragged=True, dropout=True),
    Case(layout={"tp": 2, "cp": 2, "context": "ulysses"}, recompute="full", documents=True, ragged=True, dropout=True),
    Case(layout={"tp": 2, "cp": 2, "sequence_parallel": False}, family="gpt2", dtype="fp32", micro_batch=7),
    Case(layout={"tp": 2, "cp": 2, "dp_shard": 2}, documents=True, ragged=True, dropout=True, micro_batch=1),
    Case(layout={"tp": 2, "cp": 2, "dp_replicate": 2, "context": "ulysses"}, family="gpt2", optimizer="muon"),
    Case(layout={"tp": 2, "cp": 2, "pp": 2, "zero_stage": 1}, documents=True, ragged=True, dropout=True),
)
"""Matrices and sequences on several ranks."""
SOAKED = (Case(layout={"tp": 4, "cp": 2}, recompute="selective", documents=True, dropout=True),)
"""For ``make soak`` alone, as long as twenty others: of four ranks with copied key heads, two share each sequence."""

TALKS = (
    Case(layout={"dp_shard": 2}, chats=True, dropout=True),
    Case(layout={"tp": 2}, family="gpt2", chats=True),
    Case(layout={"cp": 2}, family="gpt2", chats=True, dropout=True),
    Case(layout={"cp": 2, "context": "ulysses"}, chats=True, micro_batch=1),
    Case(layout={"pp": 2}, chats=True, micro_batch=1),
)
"""Packed chats, of whose tokens the answers alone count."""

PREFERRED = (
    Case(layout={"dp_shard": 2}, preference="dpo", dropout=True, recompute="full", micro_batch=1),
    Case(layout={"tp": 2}, preference="dpo", pad_vocabulary=16),
    Case(layout={"tp": 2, "dp_shard": 2}, family="gpt2", preference="orpo", dropout=True),
    *(Case(layout={axis: 2}, preference="reward", dropout=True) for axis in ("dp_shard", "tp", "pp")),
    Case(layout={"dp_shard": 2}, taught=True, documents=True, ragged=True, micro_batch=1),
    Case(layout={"cp": 2}, family="gpt2", taught=True, documents=True, ragged=True),
    Case(layout={"dp_shard": 2}, whole="many", dropout=True, micro_batch=1),
    Case(layout={"tp": 2}, whole="many"),
    *(
        Case(layout={"dp_shard": 2}, family="bert", whole=whole, dropout=True, micro_batch=1)
        for whole in ("mse", "words", "embed")
    ),
    Case(layout={"cp": 2}, family="gpt2", whole="many"),
    Case(layout={"cp": 2}, whole="mae"),
    *(Case(layout={axis: 2}, whole="words", model={"layers": 4}) for axis in ("tp", "pp", "cp")),
)
"""Losses of two answers in a sequence, whose pairs are not equally many; of labels; of a teacher's logits."""

UNEQUAL = (
    Case(layout={"dp_replicate": 2, "shares": (3, 1)}, documents=True, ragged=True, micro_batch=1),
    Case(layout={"dp_shard": 2, "shares": (1, 3)}, family="gpt2", dtype="fp32", ragged=True, dropout=True),
    Case(layout={"dp_replicate": 3, "shares": (2, 1, 1)}, documents=True, micro_batch=2, optimizer="adamw"),
    Case(layout={"dp_shard": 3, "shares": (1, 8, 1)}, documents=True, ragged=True, micro_batch=2),
    Case(layout={"dp_shard": 2, "cp": 2, "shares": (3, 1)}, documents=True, ragged=True, micro_batch=2),
    Case(layout={"dp_shard": 2}, ramp=True, micro_batch=2),
    Case(layout=PIPELINES[2], model={"layers": 4}, ramp=True, micro_batch=1),
)
"""Shares of the batch; one share of ten of seven sequences is none at all. Batches that grow."""

RULES = (
    Case(layout={"dp_shard": 2}, optimizer="momentum", ragged=True),
    Case(layout={"dp_shard": 2}, family="gpt2", optimizer="adam"),
    Case(layout={"dp_replicate": 2}, optimizer="adafactor"),
    Case(layout={"dp_shard": 2}, optimizer="lion", documents=True),
    Case(layout={"dp_shard": 2, "zero_stage": 1}, optimizer="schedule-free"),
    Case(layout={"tp": 2}, optimizer="schedule-free"),
    Case(layout={"dp_shard": 2}, optimizer="groups", recompute="full"),
    Case(layout={"tp": 2}, optimizer="groups"),
    Case(layout={"dp_shard": 2}, optimizer="wide"),
    Case(layout={"pp": 2}, model={"layers": 4}, optimizer="wide"),
)
"""Optimizers beside AdamW and Muon, rates of another width (muP); Adafactor's means are over whole matrices."""

MIXTURE: dict[str, object] = {
    "layers": 3,
    "experts": Experts(count=6, active=2, ffn_width=24, dense_layers=1, loss_weight=0.3, z_weight=0.1),
}
BALANCED: dict[str, object] = {
    "layers": 2,
    "kv_heads": 4,
    "latent": LatentAttention(query_rank=20, kv_rank=12, rope_size=4, value_size=6),
    "experts": Experts(
        count=6, active=2, ffn_width=24, shared_ffn_width=16, scores="sigmoid", balance="bias", bias_rate=0.1
    ),
}
MIXED = (
    Case(layout={"dp_shard": 2, "zero_stage": 3}, model=MIXTURE, recompute="full", ragged=True, micro_batch=1),
    Case(layout={"dp_shard": 2, "zero_stage": 1}, model=BALANCED, recompute="selective", ragged=True),
    Case(layout={"dp_replicate": 2}, model=BALANCED, dtype="fp32", documents=True),
    Case(layout={"pp": 2}, model=MIXTURE, ragged=True, recompute="full"),
    Case(layout={"pp": 2, "schedule": "zero_bubble"}, model=BALANCED, documents=True),
)
"""Mixtures of experts with balance by loss and by bias, under grouped and under latent attention."""

EIGHT: dict[str, object] = {
    "layers": 2,
    "experts": Experts(count=8, active=3, ffn_width=24, loss_weight=0.3, bias=True, router_bias=True),
}
SIX: dict[str, object] = {"layers": 2, "experts": Experts(count=6, active=2, ffn_width=24, bias=True)}
"""Experts that four ranks do not divide, nor two of them what each two have."""
DIVIDED = (
    Case(layout={"dp_shard": 2, "ep": 2}, model=MIXTURE, recompute="full", ragged=True, micro_batch=1),
    Case(layout={"dp_shard": 2, "ep": 2, "zero_stage": 1}, model=BALANCED, ragged=True, optimizer="adamw"),
    Case(layout={"dp_replicate": 2, "ep": 2}, model=BALANCED, dtype="fp32", documents=True),
    Case(layout={"dp_shard": 4, "ep": 2, "zero_stage": 2}, model=SIX, ragged=True, micro_batch=2, optimizer="adamw"),
    Case(layout={"dp_shard": 4}, model=SIX, documents=True),
    Case(layout={"dp_shard": 4, "ep": 4}, model=EIGHT, ragged=True, recompute="selective", micro_batch=1),
    Case(layout={"dp_replicate": 2, "dp_shard": 2, "ep": 2}, model=MIXTURE, ragged=True, optimizer="adamw"),
    Case(layout={"dp_replicate": 2, "dp_shard": 2, "ep": 4, "zero_stage": 1}, model=EIGHT, micro_batch=1),
    Case(layout={"dp_replicate": 4, "ep": 2}, model=EIGHT, documents=True),
    Case(layout={"pp": 2, "dp_shard": 2, "ep": 2, "zero_stage": 1}, model=MIXTURE, ragged=True, micro_batch=1),
    Case(layout={"pp": 2, "dp_shard": 2, "ep": 2, "schedule": "zero_bubble"}, model=BALANCED, documents=True),
    Case(layout={"dp_shard": 2, "ep": 2, "shares": (3, 1)}, model=EIGHT, ragged=True, micro_batch=1),
)
"""Experts divided among neighbours, with the rest of the network shared, copied or in stages."""

DROPS: dict[str, object] = {"dropout": True, "dtype": "fp64"}
DROPPED = (
    case({"tp": 2}, DROPS | {"family": "gpt2", "recompute": "full"}),
    case({"tp": 4, "sequence_parallel": False}, DROPS | {"documents": True, "recompute": "selective"}),
    case({"tp": 2, "dp_shard": 2}, DROPS | {"ragged": True}, vocabulary=321, ffn_width=49),
    case({"tp": 2, "pp": 2}, DROPS | {"family": "gpt2", "ragged": True}, layers=4),
)
"""What falls to dropout is the same in every layout; a vocabulary and a network that no number of ranks divides."""

HALVES = (
    Case(layout={"dp_replicate": 2}, dtype="fp16", ragged=True),
    Case(layout={"dp_shard": 2, "zero_stage": 1}, dtype="fp16", documents=True),
    Case(layout={"dp_shard": 2, "zero_stage": 2}, dtype="fp16", model={"tied": True}, micro_batch=1),
    Case(layout={"dp_shard": 2, "zero_stage": 3}, dtype="fp16", family="gpt2", ragged=True, recompute="full"),
    Case(layout={"tp": 2}, dtype="fp16", family="gpt2", documents=True),
    Case(layout={"cp": 2}, dtype="fp16", documents=True, ragged=True),
    Case(layout={"pp": 2}, dtype="fp16", model={"layers": 4}, ragged=True),
    Case(layout={"pp": 2, "schedule": "zero_bubble"}, dtype="fp16", family="gpt2", model={"layers": 4, "tied": True}),
    Case(layout={"tp": 2, "pp": 2}, dtype="fp16", model={"layers": 4}),
    Case(layout={"dp_replicate": 2, "dp_shard": 2}, dtype="fp16", ragged=True),
    Case(layout={"dp_shard": 2, "cp": 2}, dtype="fp16", documents=True),
)
"""Products in fp16 over weights in fp32, with scaled losses: sums in another order differ by fp16's rounding."""

HALF_SUMS = (
    Case(layout={"dp_shard": 2, "zero_stage": 1}, dtype="fp32", micro_batch=1, ragged=True, reduce="bf16"),
    Case(layout={"dp_shard": 2}, dtype="fp32", family="gpt2", reduce="bf16"),
    Case(layout={"dp_replicate": 2, "dp_shard": 2}, dtype="fp16", ragged=True, reduce="bf16"),
    Case(layout={"pp": 2, "dp_replicate": 2}, dtype="fp32", model={"layers": 4}, reduce="bf16"),
    Case(layout={"tp": 2, "cp": 2}, dtype="fp32", documents=True, reduce="bf16"),
)
"""Gradients that are added up over ranks in bf16, and kept in it between micro batches below ZeRO-2."""

ADAPTED = (
    Case(layout={"dp_replicate": 2}, adapter="lora", family="gpt2", documents=True, ragged=True),
    Case(layout={"dp_shard": 2, "zero_stage": 1}, adapter="dora", ragged=True, optimizer="muon"),
    Case(layout={"dp_shard": 2, "zero_stage": 3}, adapter="lora", dtype="fp32", recompute="full", dropout=True),
    Case(layout={"dp_shard": 2, "zero_stage": 3}, adapter="dora", recompute="selective", optimizer="adamw"),
    Case(layout={"cp": 2}, adapter="lora", documents=True, ragged=True, dropout=True),
    Case(layout={"dp_replicate": 2}, adapter="qlora", dtype="fp32", documents=True, ragged=True),
)
"""Adapters, whose frozen neighbours have no gradient."""

PADDED = (
    case({"tp": 2}, {"ragged": True, "documents": True, "pad_vocabulary": 16}, vocabulary=321),
    case({"tp": 2, "dp_shard": 2}, {"dtype": "fp32", "family": "gpt2", "pad_vocabulary": 64}, vocabulary=321),
    case({"pp": 2, "dp_shard": 2}, {"pad_vocabulary": 64, "micro_batch": 1}, vocabulary=321, layers=4, tied=True),
)
"""Products of the head with rows of zeros beside an odd vocabulary."""

HEAD_BIASES = (
    case({"tp": 2}, {"documents": True, "ragged": True, "pad_vocabulary": 16}, vocabulary=321, head_bias=True),
    case({"pp": 2, "dp_shard": 2}, {"ragged": True}, layers=4, tied=True, head_bias=True),
)
"""A bias of the language head: cut with its rows, and on the last stage alone where the head is the embedding."""

GPT2: dict[str, object] = {"family": "gpt2", "documents": True, "ragged": True}
SIDE_BY_SIDE: dict[str, object] = {"positions": "rope", "rotary_share": 0.5, "parallel_residual": True}
BIASED: dict[str, object] = {"positions": "alibi", "embedding_norm": True}
LAYERNORMS = (
    case({"tp": 2}, GPT2 | {"dropout": True}, **SIDE_BY_SIDE, norms_per_block=1),
    case({"tp": 2}, GPT2 | {"dropout": True}, **BIASED, norm_bias=False),
    case({"pp": 2}, GPT2, layers=4, **BIASED),
    case({"cp": 2}, GPT2, **BIASED),
    case({"tp": 2, "cp": 2, "context": "ulysses"}, GPT2, **BIASED),
)
"""Attention beside the feed-forward, behind one norm or two; ALiBi, with each rank's own heads or queries."""

FLEX: dict[str, object] = {"documents": True, "ragged": True, "attention": "flex", "steps": SLOW_STEPS}
BLOCKED = (
    case({"dp_shard": 2}, FLEX | {"micro_batch": 2}),
    case({"tp": 2}, FLEX | {"recompute": "full"}),
    case({"cp": 2}, FLEX),
    case({"cp": 2, "context": "ulysses"}, FLEX | {"family": "gpt2"}),
    case({"cp": 2, "context": "ulysses"}, FLEX | {"documents": False}),
    case({"pp": 2}, FLEX, layers=4),
    case({"tp": 2, "cp": 2}, FLEX | {"documents": False}),
)
"""Attention by flex_attention, as torch computes it where there is no kernel; one process has torch's fused one."""

NEAR: dict[str, object] = {"window_tokens": 5, "window_layers": (0, 2), "window_rope_theta": 100.0}
LONG = RopeScaling(
    kind="longrope",
    factor=4.0,
    original_tokens=10,
    short_factors=(1.0, 1.5, 2.0, 3.0),
    long_factors=(2.0, 5.0, 9.0, 9.5),
)
"""A rank of two has fewer tokens than the original context, and its sequences have more."""
PARTS = (
    case({"tp": 2}, {"family": "qwen3", "documents": True, "ragged": True}),
    case({"tp": 4, "sequence_parallel": False}, {"family": "qwen3", "dtype": "fp32"}),
    case({"tp": 2}, {"family": "gemma2", "ragged": True}, **NEAR, tied=False),
    case({"tp": 2, "cp": 2}, {"family": "gemma3_text", "documents": True}, **NEAR),
    case({"cp": 2}, {"family": "gemma2", "ragged": True}, **NEAR),
    case({"cp": 2, "context": "ulysses"}, {"family": "gemma3_text", "documents": True, "ragged": True}, **NEAR),
    case({"cp": 2}, FLEX | {"family": "mistral"}, window_tokens=5),
    case({"cp": 2}, {"family": "llama", "documents": True}, rope_scaling=LONG),
    case({"pp": 2, "schedule": "zero_bubble"}, {"family": "gemma2", "documents": True}, **NEAR, layers=4),
    case({"dp_shard": 2}, {"family": "gemma3_text", "recompute": "full", "documents": True}, **NEAR),
)
"""Windows by layer with a rotary base of their own, norms of heads and behind sub-layers, soft caps."""

ENCODERS = (
    Case(layout={"dp_replicate": 2}, family="bert", documents=True, ragged=True, dropout=True),
    Case(layout={"dp_shard": 2, "zero_stage": 2}, family="roberta", micro_batch=1, optimizer="muon", recompute="full"),
    Case(layout={"dp_shard": 2}, family="bert", dtype="fp32", documents=True, ragged=True, dropout=True),
    Case(layout={"dp_shard": 2}, family="modernbert", model={"window_tokens": 6}, documents=True, recompute="full"),
)
"""Encoders that fill gaps; they have all of a sequence on each rank."""

TERMED = (
    Case(layout={"dp_shard": 2, "zero_stage": 2}, terms=True, ragged=True, micro_batch=1),
    Case(layout={"dp_replicate": 2}, family="bert", terms=True, ragged=True),
    Case(layout={"tp": 2}, family="gemma2", model=NEAR, terms=True, ragged=True, pad_vocabulary=8),
    Case(layout={"tp": 2, "sequence_parallel": False}, family="gpt2", terms=True, optimizer="wide"),
    Case(layout={"tp": 2, "pp": 2}, family="gpt2", model={"layers": 4}, terms=True, ragged=True),
    Case(layout={"pp": 2, "schedule": "zero_bubble"}, model={"layers": 4, "tied": True}, terms=True, documents=True),
    Case(layout={"cp": 2}, terms=True, documents=True, ragged=True),
)
"""Label smoothing and z-loss, also over a shared vocabulary, and L1 and L2."""

CASES = spread(DATA_LAYOUTS) + spread(PIPELINES, layers=4) + spread(TENSORS, layers=4) + DROPPED
CASES += CONTEXTS + COMPOSED + UNEQUAL + RULES + TALKS + HALVES + HALF_SUMS + ADAPTED + PADDED + HEAD_BIASES
CASES += LAYERNORMS + BLOCKED + PARTS + ENCODERS + MIXED + TERMED + DIVIDED + PREFERRED
