"""A network in words: a row for what it has, none for what its kind cannot have."""

from __future__ import annotations

from collections.abc import Iterator

from trainwright.spec.model import ModelSpec
from trainwright.spec.parts.convolutions import Convolutions
from trainwright.spec.parts.dropout import Dropout
from trainwright.spec.parts.experts import Experts
from trainwright.spec.parts.latent import LatentAttention
from trainwright.spec.parts.rotary import RopeScaling
from trainwright.spec.parts.scales import Scales

POSITIONS = {"rope": "rotary", "learned": "learned", "alibi": "ALiBi", "none": "none"}
NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}
ACTIVATIONS = {"silu": "SiLU", "gelu": "GELU", "gelu_tanh": "GELU (tanh)", "relu": "ReLU"}


def model_facts(model: ModelSpec, parameters: int | None) -> tuple[tuple[str, str], ...]:
    """Returns names and values; ``parameters`` is their number, None where nobody counted them."""
    return tuple(_facts(model, parameters))


def _facts(model: ModelSpec, parameters: int | None) -> Iterator[tuple[str, str]]:
    yield "family", f"{model.family}, {model.kind}"
    if parameters is not None:
        yield "parameters", f"{parameters:,}"
    if model.convolutions is None:
        yield from _blocks(model)
    else:
        yield from _convolutions(model.convolutions)
        yield "normalisation", f"batch norm, epsilon {model.norm_epsilon:g}"
    yield from _ends(model)


def _convolutions(stages: Convolutions) -> Iterator[tuple[str, str]]:
    yield "stem", f"7 × 7 to {stages.stem_width:,} channels, then a maximum over 3 × 3"
    each = zip(stages.depths, stages.widths, strict=True)
    yield "stages", ", ".join(f"{depth} blocks of {width:,} channels" for depth, width in each)
    kernels = "1 × 1, 3 × 3, 1 × 1 (a quarter of the channels inside)" if stages.bottleneck else "two of 3 × 3"
    yield "block", kernels
    where = "the first 1 × 1" if stages.stride_first else "a 3 × 3"
    yield "image halved", f"in {where} of each stage{'' if stages.halves_first else ' but the first'}"


def _blocks(model: ModelSpec) -> Iterator[tuple[str, str]]:
    """Yields what a network of attention and feed-forwards has between its ends."""
    further = f", and {model.further_layers} that predict further tokens" if model.further_layers else ""
    yield "layers", f"{model.layers}{further}"
    yield "width", f"{model.width:,}"
    yield from _attention(model)
    yield "positions", _positions(model)
    gated = "gated, " if model.gated else ""
    yield "feed-forward", f"width {model.ffn_width:,}, {gated}{ACTIVATIONS[model.activation]}"
    if model.experts is not None:
        yield from _experts(model.experts)
    if model.parallel_residual:
        yield "residual", "attention and feed-forward side by side, added at once"
    yield "normalisation", _normalisation(model)
    yield "biases", _biases(model)
    if scaled := _scales(model.scales):
        yield "scales", scaled
    if model.dropout:
        yield "dropout in training", _dropout(model.dropout)


def _attention(model: ModelSpec) -> Iterator[tuple[str, str]]:
    heads = f"{model.heads} heads of {model.head_size} elements"
    if model.kv_heads != model.heads and model.latent is None:
        heads += f", {model.kv_heads} of them for keys and values"
    if model.qk_norm:
        heads += ", queries and keys normalised"
    if model.sinks:
        heads += ", with attention sinks"
    if model.scales.attention is not None:
        heads += f", scores multiplied by {model.scales.attention:.4g}"
    if model.score_cap is not None:
        heads += f", scores softly below {model.score_cap:g}"
    yield "attention", heads
    if model.latent is not None:
        yield "latent attention", _latent(model.latent, model.kv_heads)
    if model.window_tokens is not None:
        sides = ", half on each side" if model.kind == "encoder" else ""
        yield "attention window", f"{model.window_tokens:,} tokens in {_windowed(model)}{sides}"


def _windowed(model: ModelSpec) -> str:
    count = f"{model.windowed_layers} layers"
    return count if model.window_layers is None else f"{count} ({', '.join(map(str, model.window_layers))})"


def _latent(latent: LatentAttention, kv_heads: int) -> str:
    queries = "queries from the width" if latent.query_rank is None else f"queries from {latent.query_rank:,}"
    return (
        f"keys and values of {kv_heads} heads from {latent.kv_rank:,} elements, {queries}, "
        f"{latent.rope_size} rotated{'' if latent.interleaved else ' (pairs half of them apart)'}, "
        f"values of {latent.value_size}"
    )


def _positions(model: ModelSpec) -> str:
    text = POSITIONS[model.positions]
    if model.positions == "rope":
        text += f", base {model.rope_theta:,.6g}"
        if model.window_rope_theta is not None:
            text += f", {model.window_rope_theta:,.6g} in layers with a window"
        if model.rotary_share != 1:
            text += f", of {model.rotated_size} elements of a head"
        if model.rope_scaling is not None:
            text += f", {_scaling(model.rope_scaling)}"
    if model.extra_positions:
        text += f", {model.extra_positions} rows beyond the context"
    return text


def _scaling(scaling: RopeScaling) -> str:
    text = f"scaled ({scaling.kind}, factor {scaling.factor:g})"
    return text if scaling.original_tokens is None else f"{text} from {scaling.original_tokens:,} tokens"


def _experts(experts: Experts) -> Iterator[tuple[str, str]]:
    yield "experts", f"{experts.count}, of which {experts.active} see each token, width {experts.ffn_width:,}"
    shared = f"width {experts.shared_ffn_width:,}" if experts.shared_ffn_width else "none"
    gate = ", gated" if experts.shared_gate else ""
    yield "shared expert", shared + gate
    if experts.dense_layers:
        numbers = "" if experts.dense is None else f" ({', '.join(map(str, experts.dense))})"
        yield "layers without experts", f"{experts.dense_layers}{numbers}"
    yield "router", _router(experts)
    if experts.limit is not None:
        yield "activation of experts", f"clamped at {experts.limit:g}, gate times {experts.steepness:g} in its sigmoid"
    biased = [name for name, has in (("router", experts.router_bias), ("experts", experts.bias)) if has]
    if biased:
        yield "biases of the mixture", ", ".join(biased)


def _router(experts: Experts) -> str:
    text = f"{experts.scores}, {'normalised' if experts.normalised else 'as they are'}"
    if experts.scale != 1:
        text += f", times {experts.scale:g}"
    if experts.groups > 1 or experts.active_groups > 1:
        best = "best" if experts.group_best == 1 else f"{experts.group_best} best"
        text += f", {experts.active_groups} of {experts.groups} groups by their {best}"
    if experts.balance == "bias":
        text += f", balanced by a bias that moves by {experts.bias_rate:g}"
    else:
        text += f", balanced by an auxiliary loss of weight {experts.loss_weight:g}"
    return text + (f", loss of large logits {experts.z_weight:g}" if experts.z_weight else "")


def _normalisation(model: ModelSpec) -> str:
    text = f"{NORMS[model.norm]}, {model.norms_per_block} per block, epsilon {model.norm_epsilon:g}"
    if model.norm == "layernorm" and not model.norm_bias:
        text += ", without bias"
    if model.post_norm:
        text += ", over sums with the stream"
    if model.norm_offset:
        text += f", weights plus {model.norm_offset:g}"
    if model.embedding_norm:
        text += ", after the embedding too"
    if not model.first_norm:
        text += ", none before the first attention"
    return text if model.final_norm else text + ", none after the last block"


def _biases(model: ModelSpec) -> str:
    qkv = model.qkv_biased
    output = model.output_biased
    parts = (
        ("queries, keys and values", qkv),
        ("attention output", output),
        ("feed-forward", model.bias),
        ("language head", model.head_bias),
    )
    return ", ".join(name for name, has in parts if has) or "none"


def _scales(scales: Scales) -> str:
    factors = (("embeddings", scales.embedding), ("outputs of sub-layers", scales.residual))
    parts = [f"{what} times {factor:.4g}" for what, factor in factors if factor != 1]
    return ", ".join([*parts, *([f"logits by 1/{scales.logits_divisor:g}"] if scales.logits_divisor != 1 else [])])


def _dropout(dropout: Dropout) -> str:
    rates = (
        ("of sub-layers' outputs", dropout.residual),
        ("of embeddings", dropout.embedding),
        ("of attention's weights", dropout.attention),
        ("of the last block's sub-layers", dropout.depth),
    )
    return ", ".join(f"{rate:.4g} {what}" for what, rate in rates if rate)


def _ends(model: ModelSpec) -> Iterator[tuple[str, str]]:
    """Returns what goes in and comes out: text, images, classes."""
    if model.kind == "vision":
        patches = "" if model.convolutions else f", patches of {model.patch_size}"
        yield "image", f"{model.image_size} × {model.image_size} pixels{patches}"
    else:
        head = "shared with the output head" if model.tied else "an output head of its own"
        cap = "" if model.logit_cap is None else f", logits softly below {model.logit_cap:g}"
        yield "vocabulary", f"{model.vocabulary:,}, {head if model.makes_logits else 'no output head'}{cap}"
        yield "context", f"{model.context_tokens:,} tokens"
    if model.segments:
        yield "segments", f"{model.segments}"
    if model.classes:
        names = "" if model.labels is None else f" ({', '.join(model.labels)})"
        where = ", behind a pooler" if model.pooler else ", of every token" if model.tells_tokens else ""
        where += " over the mean of all tokens" if model.pooling == "mean" else ""
        where += ", which is a layer with GELU and a norm" if model.head_transform else ""
        yield "classes", f"{model.classes:,}{names}{where}"
    elif model.pooler:
        yield "pooler", "over the first token"
