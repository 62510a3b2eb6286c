"""Models on disk: a trained artefact or a Hugging Face directory becomes a network and its tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from trainwright.core.errors import DataError
from trainwright.core.records import from_json
from trainwright.model import hf
from trainwright.model.conventions import read_object, read_text
from trainwright.model.decoder import Decoder
from trainwright.model.weights import load_weights
from trainwright.spec.model import ModelSpec

SPEC = "model.json"
TOKENIZER = "tokenizer.json"


def load_bundle(
    directory: Path, *, device: torch.device | None = None, dtype: torch.dtype = torch.float32
) -> tuple[Decoder, Tokenizer]:
    """The model and tokenizer of a trained artefact (``model.json``) or a Hugging Face directory (``config.json``).

    Args:
        directory: where it is.
        device: where to compute; the CPU when None.
        dtype: of weights and arithmetic.

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
    model = build(spec, weights, where=directory).to(device=device, dtype=dtype)
    model.compute_dtype = dtype
    return model, _read_tokenizer(directory / TOKENIZER, spec)


def build(spec: ModelSpec, weights: Mapping[str, Tensor], *, where: object) -> Decoder:
    """A decoder with these weights, for inference: no parameter wants a gradient.

    Raises:
        DataError: the spec is impossible, or a weight is missing, unknown or of another shape; names the first.
    """
    problems = spec.problems()
    if problems:
        raise DataError("this is no possible model", where=where, seen=problems[0])
    model = Decoder(spec)
    wanted = dict(model.named_parameters())
    for name in sorted(wanted.keys() | weights.keys()):
        if name not in weights:
            raise DataError("a weight is missing", where=where, expected=name)
        if name not in wanted:
            raise DataError("a weight has no place in this model", where=where, seen=name)
        if weights[name].shape != wanted[name].shape:
            raise DataError(
                f"weight {name} has another shape", where=where,
                seen=tuple(weights[name].shape), expected=str(tuple(wanted[name].shape)),
            )  # fmt: skip
    model.load_state_dict(dict(weights), assign=True)
    return model.eval().requires_grad_(False)


def _read_tokenizer(path: Path, spec: ModelSpec) -> Tokenizer:
    text = read_text(path)
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:
        # The package raises bare Exception for anything it cannot parse.
        raise DataError("cannot read the tokenizer", where=path, seen=str(error)) from error
    size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    if size > spec.vocabulary:
        raise DataError(
            "the tokenizer has more tokens than the model", where=path,
            seen=f"{size} tokens", expected=f"{spec.vocabulary} at most",
        )  # fmt: skip
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
