"""gpt-oss (OpenAI, 2025, arXiv 2508.10925): sinks, a window in every other layer, biases, clamped experts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainwright.core.frozen import dataclass
from trainwright.model.experts.names import MixtureLike, MixtureNames, experts_of, mixed_layers, same, window_keys
from trainwright.spec.families.experts import gpt_oss
from trainwright.spec.model import ModelSpec

if TYPE_CHECKING:
    from torch import Tensor


def _keys(spec: ModelSpec) -> dict[str, Any]:
    experts = experts_of(spec)
    return {
        "attention_bias": spec.bias,
        "intermediate_size": experts.ffn_width,
        "num_experts_per_tok": experts.active,
        "num_local_experts": experts.count,
        "swiglu_alpha": experts.steepness,
        "swiglu_limit": experts.limit,
        **window_keys(spec),
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Joined(MixtureLike):
    """Experts lie joined on disk too, as (in, out), gate and up of an element side by side.

    OpenAI's own files have them in 4 bits (mxfp4), which are not read.
    """

    def to_hf(self, weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
        """Our weights in Hugging Face's form."""
        import torch  # a recipe is checked before torch is needed

        converted = {theirs: weights[ours] for ours, theirs in same(spec, self.called)}
        for ours, theirs in mixed_layers(spec):
            joined = f"{theirs}mlp.experts."
            both = torch.stack([weights[f"{ours}{part}.weight"] for part in ("gate", "up")], dim=2).flatten(1, 2)
            biases = torch.stack([weights[f"{ours}{part}.bias"] for part in ("gate", "up")], dim=2).flatten(1, 2)
            converted |= {f"{joined}gate_up_proj": both.transpose(1, 2), f"{joined}gate_up_proj_bias": biases}
            converted[f"{joined}down_proj"] = weights[f"{ours}down.weight"].transpose(1, 2)
            converted[f"{joined}down_proj_bias"] = weights[f"{ours}down.bias"]
        return converted

    def from_hf(self, weights: Mapping[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
        """Hugging Face weights in our form.

        Raises:
            KeyError: a weight is missing; names it.
        """
        converted = {ours: weights[theirs] for ours, theirs in same(spec, self.called)}
        for ours, theirs in mixed_layers(spec):
            joined = f"{theirs}mlp.experts."
            both, biases = weights[f"{joined}gate_up_proj"], weights[f"{joined}gate_up_proj_bias"]
            for first, part in enumerate(("gate", "up")):
                converted[f"{ours}{part}.weight"] = both[..., first::2].transpose(1, 2).contiguous()
                converted[f"{ours}{part}.bias"] = biases[..., first::2].contiguous()
            converted[f"{ours}down.weight"] = weights[f"{joined}down_proj"].transpose(1, 2).contiguous()
            converted[f"{ours}down.bias"] = weights[f"{joined}down_proj_bias"]
        return converted


_FORM = _Joined(
    family="gpt_oss",
    architecture="GptOss",
    read=gpt_oss,
    refused=(("hidden_act", "silu"),),
    keys=_keys,
    called=MixtureNames(router="mlp.router"),
)
from_config, to_config, to_hf, from_hf = _FORM.from_config, _FORM.to_config, _FORM.to_hf, _FORM.from_hf
