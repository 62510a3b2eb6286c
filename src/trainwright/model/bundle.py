"""Models on disk: a trained artefact or a Hugging Face directory becomes a network and its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from trainwright.core.errors import DataError
from trainwright.core.records import from_json, read_object
from trainwright.model import hf
from trainwright.model.build import build_network
from trainwright.model.conventions import TOKENIZER, read_tokenizer
from trainwright.model.network import Network
from trainwright.model.weights import load_weights
from trainwright.spec.model import ModelSpec

SPEC = "model.json"


def load_bundle(
    directory: Path,
    *,
    device: torch.device | None = None,
    dtype: torch.dtype = torch.float32,
    compute_dtype: torch.dtype | None = None,
) -> tuple[Network, Tokenizer]:
    """The model and tokenizer of a trained artefact (``model.json``) or a Hugging Face directory (``config.json``).

    Args:
        directory: where it is.
        device: where to compute; the CPU when None.
        dtype: of the weights.
        compute_dtype: of activations and matrix products; ``dtype`` when None.

    Raises:
        DataError: a file is missing, damaged or does not fit the others; names it.
        RecipeError: the configuration asks for something that is not computed here.
    """
    device = device or torch.device("cpu")
    if (directory / SPEC).is_file():
        spec = from_json(ModelSpec, read_object(directory / SPEC), where=str(directory / SPEC))
        weights = load_weights(directory / hf.WEIGHTS)
    elif (directory / "config.json").is_file():
        spec = hf.read_spec(directory)
        weights = hf.read_weights(directory, spec)
    else:
        raise DataError("no model here", where=directory, expected=f"a directory with {SPEC} or config.json")
    model = build(spec, weights, where=directory, dtype=compute_dtype or dtype).to(device=device, dtype=dtype)
    return model, _read_tokenizer(directory, spec)


def build(
    spec: ModelSpec, weights: Mapping[str, Tensor], *, where: object, dtype: torch.dtype = torch.float32
) -> Network:
    """Returns a network with these weights that computes in ``dtype``, for inference: no parameter wants a gradient.

    Raises:
        DataError: the spec is impossible, or a weight is missing, unknown or of another shape; names the first.
    """
    problems = spec.problems()
    if problems:
        raise DataError("this is no possible model", where=where, seen=problems[0])
    model = build_network(spec, dtype=dtype, where=str(where))
    wanted = dict(model.named_parameters())
    for name in sorted(wanted.keys() | weights.keys()):
        if name not in weights:
            raise DataError("a weight is missing", where=where, expected=name)
        if name not in wanted:
            raise DataError("a weight has no place in this model", where=where, seen=name)
        if weights[name].shape != wanted[name].shape:
            raise DataError(
                "weight {name} has another shape",
                where=where,
                seen=tuple(weights[name].shape),
                expected=str(tuple(wanted[name].shape)),
                name=name,
            )
    model.load_state_dict(dict(weights), assign=True)
    return model.eval().requires_grad_(False)


def _read_tokenizer(directory: Path, spec: ModelSpec) -> Tokenizer:
    tokenizer = read_tokenizer(directory)
    size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    if size > spec.vocabulary:
        raise DataError(
            "the tokenizer has more tokens than the model",
            where=directory / TOKENIZER,
            seen=f"{size} tokens",
            expected=f"{spec.vocabulary} at most",
        )
    return tokenizer
