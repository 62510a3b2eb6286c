"""Names of a mixture's and of latent attention's weights in Hugging Face's form, both ways.

Checkpoints on disk have a tensor for each expert's matrix; transformers 5 joins all experts of a layer, gate and up in
one, when it reads them, and may write them so. Both forms are read, the first is written: every version reads it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainwright.core.frozen import dataclass
from trainwright.model.families.llama import LlamaLike, block_names
from trainwright.model.families.llama import names as llama_names
from trainwright.spec.families.rotary import rope_parameters
from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.experts import Experts

if TYPE_CHECKING:
    from torch import Tensor

CORRECTION = "e_score_correction_bias"
"""What balances experts, by its name in Hugging Face's form: kept in fp32 whatever the dtype of weights is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MixtureNames:
    """What a family calls the parts of a layer's mixture, below ``model.layers.N.``.

    Attributes:
        router: the router's matrix, without ``.weight``.
        experts: one expert's folder, with ``{}`` for its number.
        parts: of an expert, gate, up and down, without ``.weight``.
        joined: the folder with all experts in one.
        shared: the shared experts' folder.
        shared_gate: its gate, without ``.weight``.
    """

    router: str = "mlp.gate"
    experts: str = "mlp.experts.{}"
    parts: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    joined: str = "mlp.experts"
    shared: str = "mlp.shared_experts"
    shared_gate: str = "mlp.shared_expert_gate"


PARTS = ("gate", "up", "down")
_LATENT = {
    "query": "q_proj",
    "query_down": "q_a_proj",
    "query_norm": "q_a_layernorm",
    "query_up": "q_b_proj",
    "kv_down": "kv_a_proj_with_mqa",
    "kv_norm": "kv_a_layernorm",
    "kv_up": "kv_b_proj",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MixtureLike(LlamaLike):
    """The Hugging Face form of a decoder with experts, whose other weights have Llama's names or DeepSeek's.

    Attributes:
        called: what it calls the parts of a mixture.
    """

    called: MixtureNames = MixtureNames()

    def from_config(self, config: Mapping[str, Any], *, where: str) -> ModelSpec:
        """Returns the shape that a Hugging Face configuration describes, without blocks that predict further tokens.

        No logit depends on these, and transformers leaves them out too.
        """
        return LlamaLike.from_config(self, config, where=where).deployed()

    def to_hf(self, weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
        """Our weights in Hugging Face's form, a tensor for each expert's matrix."""
        converted = {theirs: weights[ours] for ours, theirs in same(spec, self.called)}
        for ours, theirs in mixed_layers(spec):
            for part, called in zip(PARTS, self.called.parts, strict=True):
                for expert, matrix in enumerate(weights[f"{ours}{part}.weight"].unbind()):
                    converted[f"{theirs}{self.called.experts.format(expert)}.{called}.weight"] = matrix
        return converted

    def from_hf(self, weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
        """Hugging Face weights in our form, of experts apart or joined.

        Raises:
            KeyError: a weight is missing; names it.
        """
        called = self._called(weights, spec)
        # What balances experts has no gradient, so that gradients are converted without it.
        there = (pair for pair in same(spec, called) if not pair[1].endswith(CORRECTION) or pair[1] in weights)
        converted = {ours: weights[theirs] for ours, theirs in there}
        for name in _of_further_layers(weights, spec):
            weights[name]  # it has been seen, and has no place in this network
        for ours, theirs in mixed_layers(spec):
            parts = self._experts(weights, theirs, spec, called)
            converted |= {f"{ours}{part}.weight": matrix for part, matrix in zip(PARTS, parts, strict=True)}
        return converted

    def _called(self, weights: Mapping[str, Tensor], spec: ModelSpec) -> MixtureNames:
        """Returns what these weights are called: as on disk, or as transformers 5 calls them in memory."""
        layer = next((theirs for _, theirs in mixed_layers(spec)), "")
        there = f"{layer}{self.called.router}.weight" in weights
        return self.called if there else replace(self.called, router=MixtureNames().router)

    def _experts(
        self, weights: Mapping[str, Tensor], layer: str, spec: ModelSpec, called: MixtureNames
    ) -> Iterator[Tensor]:
        """Yields gate, up and down of all experts of a layer."""
        import torch  # a recipe is checked before torch is needed

        joined = f"{layer}{called.joined}."
        if f"{joined}gate_up_proj" in weights:
            yield from (part.contiguous() for part in weights[f"{joined}gate_up_proj"].chunk(2, dim=1))
            yield weights[f"{joined}down_proj"]
            return
        assert spec.experts is not None
        for part in called.parts:
            pattern = f"{layer}{called.experts}.{part}.weight"
            yield torch.stack([weights[pattern.format(expert)] for expert in range(spec.experts.count)])


def same(spec: ModelSpec, called: MixtureNames) -> Iterator[tuple[str, str]]:
    """Yields our name and theirs of every weight that has the same shape in both: all but routed experts'."""
    outer = [pair for pair in llama_names(replace(spec, layers=1)) if not pair[0].startswith("blocks.")]
    yield from outer
    for layer in range(spec.layers):
        for ours, theirs in _layer(spec, layer, called):
            yield f"blocks.{layer}.{ours}", f"model.layers.{layer}.{theirs}"


def _layer(spec: ModelSpec, layer: int, called: MixtureNames) -> Iterator[tuple[str, str]]:
    """Yields the same of one layer."""
    for ours, theirs in block_names(spec):
        of_experts = ours.startswith("ffn.") and spec.mixes(layer)
        of_latent = spec.latent is not None and ours.startswith("attention.") and not ours.startswith("attention.out")
        if not (of_experts or of_latent):
            yield ours, theirs
    if spec.latent is not None:
        yield from _latent(spec, straight=spec.latent.query_rank is None)
    if spec.sinks:
        yield "attention.sinks", "self_attn.sinks"
    if spec.mixes(layer):
        yield from _mixture(spec, called)


def _latent(spec: ModelSpec, *, straight: bool) -> Iterator[tuple[str, str]]:
    biased = {"query_down", "kv_down"} if spec.qkv_biased else set()
    for part, theirs in _LATENT.items():
        if part.startswith("query") and (part == "query") != straight:
            continue
        for kind in ("weight", "bias")[: 1 + (part in biased)]:
            yield f"attention.{part}.{kind}", f"self_attn.{theirs}.{kind}"


def _mixture(spec: ModelSpec, called: MixtureNames) -> Iterator[tuple[str, str]]:
    experts = spec.experts
    assert experts is not None
    yield "ffn.router.weight", f"{called.router}.weight"
    if experts.router_bias:
        yield "ffn.router.bias", f"{called.router}.bias"
    if experts.balance == "bias":
        yield "ffn.router.correction", f"{called.router}.{CORRECTION}"
    if experts.shared_ffn_width:
        yield from ((f"ffn.shared.{part}.weight", f"{called.shared}.{part}_proj.weight") for part in PARTS)
    if experts.shared_gate:
        yield "ffn.shared_gate.weight", f"{called.shared_gate}.weight"


def mixed_layers(spec: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yields what our names and theirs of a mixture begin with, layer by layer."""
    for layer in range(spec.layers):
        if spec.mixes(layer):
            yield f"blocks.{layer}.ffn.", f"model.layers.{layer}."


def _of_further_layers(weights: Mapping[str, Tensor], spec: ModelSpec) -> list[str]:
    """Returns the names of weights of blocks behind the last one, which their projection tells from others."""
    folders = (f"model.layers.{layer}." for layer in itertools.count(spec.layers))
    known = tuple(itertools.takewhile(lambda folder: f"{folder}eh_proj.weight" in weights, folders))
    return [name for name in weights if name.startswith(known)]


def experts_of(spec: ModelSpec) -> Experts:
    """Returns a shape's experts.

    Raises:
        ValueError: it has none.
    """
    if spec.experts is None:
        raise ValueError(f"Hugging Face's {spec.family} has experts in some layer, this shape has none")
    return spec.experts


def sparse_keys(spec: ModelSpec) -> dict[str, Any]:
    """Returns Qwen's keys of which layers have experts."""
    alone = [layer for layer in range(spec.layers) if not spec.mixes(layer)]
    return {"decoder_sparse_step": 1, "mlp_only_layers": alone}


def window_keys(spec: ModelSpec) -> dict[str, Any]:
    """Returns the keys of windowed layers."""
    kinds = ["full_attention" if spec.window_of(layer) is None else "sliding_attention" for layer in range(spec.layers)]
    return {"sliding_window": spec.window_tokens, "layer_types": kinds}


def deepseek_keys(spec: ModelSpec) -> dict[str, Any]:
    """Returns DeepSeek's keys of experts: how many, how they are chosen, which are shared."""
    experts = experts_of(spec)
    if experts.shared_ffn_width % experts.ffn_width:
        raise ValueError(f"Hugging Face's {spec.family} has shared experts of {experts.ffn_width} elements each")
    grouped = experts.groups > 1
    method = "noaux_tc" if experts.balance == "bias" else "group_limited_greedy" if grouped else "greedy"
    return {
        "first_k_dense_replace": experts.dense_layers,
        "moe_intermediate_size": experts.ffn_width,
        "n_group": experts.groups,
        "n_routed_experts": experts.count,
        "n_shared_experts": experts.shared_ffn_width // experts.ffn_width,
        "norm_topk_prob": experts.normalised,
        "num_experts_per_tok": experts.active,
        "num_nextn_predict_layers": 0,
        "routed_scaling_factor": experts.scale,
        "scoring_func": experts.scores,
        "topk_group": experts.active_groups,
        "topk_method": method,
    }


def latent_keys(spec: ModelSpec) -> dict[str, Any]:
    """Returns DeepSeek's keys of latent attention."""
    latent = spec.latent
    if latent is None:
        raise ValueError(f"Hugging Face's {spec.family} has latent attention, this shape has none")
    keys: dict[str, Any] = {
        "attention_bias": spec.qkv_biased,
        "head_dim": latent.rope_size,
        "kv_lora_rank": latent.kv_rank,
        "q_lora_rank": latent.query_rank,
        "qk_nope_head_dim": spec.head_size,
        "qk_rope_head_dim": latent.rope_size,
        "v_head_dim": latent.value_size,
    }
    if spec.scales.attention is None or spec.rope_scaling is None:
        return keys
    # Read back it is the same number: a few digits say what a configuration said.
    once = math.sqrt(spec.scales.attention * math.sqrt(spec.score_size))
    rope = rope_parameters(spec) | {"mscale_all_dim": round((once - 1) / (0.1 * math.log(spec.rope_scaling.factor)), 9)}
    return keys | {"rope_parameters": rope, "rope_scaling": rope}
