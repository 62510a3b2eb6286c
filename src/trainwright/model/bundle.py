"""Models on disk: a trained artefact or a Hugging Face directory becomes a network and its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from trainwright.artifact.checkpoint.index import is_checkpoint
from trainwright.artifact.model_folder import ADAPTERS, SHAPE_FILE, TOKENIZER, WEIGHTS, check_stored, read_shape
from trainwright.core.errors import DataError, RecipeError
from trainwright.core.registry import load
from trainwright.model import hf
from trainwright.model.build import build_network
from trainwright.model.conventions import read_tokenizer
from trainwright.model.network import Network
from trainwright.model.weights import load_weights
from trainwright.spec.model import ModelSpec

PIECES = "trainwright.runtime.stored_tensors:whole_weights"
"""Reads a checkpoint of any number of processes, and compares what it reads with the digests of its index."""
ADAPTED = "trainwright.model.adapters.stored:whole_weights"
_CPU, _META = torch.device("cpu"), torch.device("meta")


def load_bundle(
    directory: Path,
    *,
    device: torch.device = _CPU,
    dtype: torch.dtype = torch.float32,
    compute_dtype: torch.dtype | None = None,
) -> tuple[Network, Tokenizer]:
    """Returns model and tokenizer of a trained artefact (``model.json``) or a Hugging Face directory (``config.json``).

    Args:
        directory: where it is.
        device: where to compute; on ``meta`` no weight is read, and all else is checked.
        dtype: of the weights.
        compute_dtype: of activations and matrix products; ``dtype`` when None.

    Raises:
        DataError: a file is missing, damaged or does not fit the others; names it.
        RecipeError: the configuration asks for something that is not computed here.
    """
    network = load_network(directory, device=device, dtype=dtype, compute_dtype=compute_dtype)
    return network, _read_tokenizer(directory, network.spec)


def load_network(
    directory: Path,
    *,
    device: torch.device = _CPU,
    dtype: torch.dtype = torch.float32,
    compute_dtype: torch.dtype | None = None,
) -> Network:
    """Returns the model alone, which may have no tokenizer because it sees images; else as ``load_bundle``."""
    spec = read_shape(directory)
    read_on = _META if device == _META else _CPU
    weights = read_stored(directory, spec, device=read_on)
    model = build(spec, weights, where=directory, dtype=compute_dtype or dtype, device=read_on)
    return model.to(device=device, dtype=dtype)


def read_stored(directory: Path, spec: ModelSpec, *, device: torch.device) -> dict[str, Tensor]:
    """Returns the weights of the model in a directory, with adapters merged into those of their base.

    Args:
        directory: where it is.
        spec: its shape.
        device: where to put them; on ``meta`` headers alone are read.

    Raises:
        DataError: a file is missing, damaged or does not fit the others; names it.
    """
    if not (directory / SHAPE_FILE).is_file():
        return hf.read_weights(directory, spec, device=device)
    pieces = is_checkpoint(directory)
    read = load(PIECES, kind="checkpoint") if pieces else load_weights
    weights: dict[str, Tensor] = read(directory if pieces else directory / WEIGHTS, device=device)
    if (directory / ADAPTERS).is_file():
        weights = load(ADAPTED, kind="adapter")(directory, weights, read_stored, device=device)
    return weights


def check_bundle(directory: Path, tokenizer: Path | None, *, where: str) -> None:
    """Checks that training can begin with a model: as it will be loaded, but of the weights their headers alone.

    Args:
        directory: with the model.
        tokenizer: of the dataset, where it is known.
        where: what names the directory, for the error line.

    Raises:
        DataError: as ``load_bundle``.
        RecipeError: as that and ``check_tokens``, or the embedding is larger than the tokenizer.
    """
    network = load_network(directory, device=_META)
    if network.spec.sees_images:
        return
    own = _read_tokenizer(directory, network.spec)
    if tokenizer is None:
        return
    check_tokens(own, tokenizer, base=directory, where=where)
    if _size(own) < network.spec.vocabulary:
        raise RecipeError(
            "the base's vocabulary is larger than its tokenizer",
            where=where,
            seen=f"{network.spec.vocabulary} entries, {_size(own)} tokens",
            expected="as many",
            fix="cut its embedding and head to the tokens, for example with transformers' resize_token_embeddings",
        )


def check_tokens(own: Tokenizer, other: Path, *, base: Path, where: str) -> None:
    """Compares the tokenizer of a base with that of a dataset.

    Both are parsed: versions of the library write the same merges in two ways.

    Raises:
        DataError: ``other`` is no tokenizer.json.
        RecipeError: the two give other ids to the same text.
    """
    if json.loads(own.to_str())["model"] != json.loads(read_tokenizer(other).to_str())["model"]:
        raise RecipeError(
            "the pretrained model has another tokenizer",
            where=where,
            seen=base,
            fix=f"set data.tokenizer.kind=pretrained and data.tokenizer.path={base / TOKENIZER}",
        )


def build(
    spec: ModelSpec,
    weights: Mapping[str, Tensor],
    *,
    where: object,
    dtype: torch.dtype = torch.float32,
    device: torch.device = _CPU,
) -> Network:
    """Returns a network with these weights that computes in ``dtype``, for inference: no parameter wants a gradient.

    Args:
        spec: the shape.
        weights: of each parameter and of what is ``stored`` beside them, on ``device``.
        where: what they come from, for the error line.
        dtype: of activations and matrix products.
        device: where the network is made; its tables are computed there.

    Raises:
        DataError: the spec is impossible, or a weight is missing, unknown, of another shape or no floating-point
            number of 16 bits or more; names the first.
    """
    problems = spec.problems()
    if problems:
        raise DataError("this is no possible model", where=where, seen=problems[0])
    with device:
        model = build_network(spec, dtype=dtype, where=str(where))
    wanted = dict(model.stored())
    for name in sorted(wanted.keys() | weights.keys()):
        if name not in weights:
            raise DataError("a weight is missing", where=where, expected=name)
        if name not in wanted:
            raise DataError("a weight has no place in this model", where=where, seen=name)
        _check_weight(name, weights[name], wanted[name], where=where)
    model.load_state_dict(dict(weights), assign=True)
    return model.eval().requires_grad_(False)


def _check_weight(name: str, weight: Tensor, wanted: Tensor, *, where: object) -> None:
    if weight.shape != wanted.shape:
        seen, expected = tuple(weight.shape), str(tuple(wanted.shape))
        raise DataError("weight {name} has another shape", where=where, seen=seen, expected=expected, name=name)
    check_stored(name, str(weight.dtype).removeprefix("torch."), where=where)


def _read_tokenizer(directory: Path, spec: ModelSpec) -> Tokenizer:
    tokenizer = read_tokenizer(directory / TOKENIZER)
    if _size(tokenizer) > spec.vocabulary:
        where, seen, expected = directory / TOKENIZER, f"{_size(tokenizer)} tokens", f"{spec.vocabulary} at most"
        raise DataError("the tokenizer has more tokens than the model", where=where, seen=seen, expected=expected)
    return tokenizer


def _size(tokenizer: Tokenizer) -> int:
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
