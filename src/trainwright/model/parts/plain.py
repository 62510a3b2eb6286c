"""What encoders and networks of images leave out: fields of a shape that decoders alone compute otherwise."""

from __future__ import annotations

from collections.abc import Mapping

from trainwright.spec.parts.scales import NO_SCALES

PLAIN: Mapping[str, tuple[object, ...]] = {
    "gated": (False,),
    "norm": ("layernorm",),
    "norm_bias": (True,),
    "first_norm": (True,),
    "pooling": ("first",),
    "head_transform": (False,),
    "norms_per_block": (2,),
    "parallel_residual": (False,),
    "qk_norm": (False,),
    "sinks": (False,),
    "window_tokens": (None,),
    "window_layers": (None,),
    "window_rope_theta": (None,),
    "experts": (None,),
    "latent": (None,),
    "further_layers": (0,),
    "rotary_share": (1.0,),
    "rope_scaling": (None,),
    "norm_offset": (0.0,),
    "scales": (NO_SCALES,),
    "score_cap": (None,),
    "logit_cap": (None,),
    "token_classes": (False,),
}
"""The values that they compute."""
OF_IMAGES: Mapping[str, tuple[object, ...]] = {
    **PLAIN,
    "kind": ("vision",),
    "vocabulary": (0,),
    "tied": (False,),
    "post_norm": (False,),
    "embedding_norm": (False,),
    "final_norm": (True,),
    "extra_positions": (0,),
    "head_bias": (False,),
    "language_head": (None, False),
    "segments": (0,),
    "pooler": (False,),
}
"""The values that every network of images computes."""
