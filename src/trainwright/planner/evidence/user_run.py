"""A measured run as a user writes it down in JSON, checked name by name, as columns of a table of runs.

Tables of published runs may hold columns that nobody reads and words that mean nothing; a run that a user wrote to have
predictions corrected by it may not: a misspelt name would change nothing, silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainwright.core.errors import DataError
from trainwright.core.spelling import unknown
from trainwright.hardware.catalogue.models import read_model
from trainwright.hardware.catalogue.stacks import DEFAULT, find_stack, stack_names
from trainwright.planner.evidence.words import READERS, UnknownWord
from trainwright.spec.convnet import transformer
from trainwright.spec.model import ModelSpec

SHAPE = ("arch", "n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads", "vocab", "tied_embeddings")
MEASURED = ("tokens_per_s_per_gpu", "tflops_per_gpu", "step_time_s", "peak_mem_gib_per_gpu", "oom")
NAMES = (
    "id",
    "source_repo_or_paper",
    "source_path",
    "framework",
    "model",
    "model_name",
    "n_params",
    *SHAPE,
    "seq_len",
    "gpu",
    "n_gpus",
    "interconnect_note",
    "dtype",
    "dp_shard_or_fsdp",
    "tp",
    "pp",
    "cp",
    "ep",
    "micro_batch",
    "global_batch",
    "activation_checkpointing",
    "optimizer",
    "cpu_offload",
    "compile",
    "flash_attention",
    *MEASURED,
    "mfu_reported",
    "notes",
)
"""All that a run may say: the columns of a table, and ``model`` in place of a shape."""


def checked(run: Mapping[str, Any], *, where: str, place: int) -> tuple[dict[str, Any], ModelSpec | None]:
    """Returns the run as columns of a table, and its model where it names one in place of a shape.

    Raises:
        DataError: an unknown name, word or software, a shape given twice, or nothing that was measured.
        RecipeError: the model is in no catalogue.
    """
    for name in run:
        if name not in NAMES:
            raise DataError("unknown name", where=where, **unknown(name, NAMES) | {"seen": name})
    values = {name: value for name, value in run.items() if value is not None and value != ""}
    software = str(values.get("framework", DEFAULT))
    if find_stack(software) is None:
        problem = unknown(software, stack_names()) | {"seen": repr(software)}
        raise DataError("unknown software", where=f"{where}, framework", **problem)
    for name, reader in READERS.items():
        if name not in values:
            continue
        text = as_printed(values[name])
        try:
            meant = reader(text)
        except UnknownWord as error:
            problem = unknown(text.lower(), error.known) | {"seen": repr(values[name]), "expected": error.expected}
            raise DataError("unknown value", where=f"{where}, {name}", **problem) from None
        if isinstance(meant, bool):
            values[name] = meant
    if not any(name in values for name in MEASURED):
        expected = "one of them at least: tokens or 10^12 operations of a second and device, seconds of a step, GiB"
        raise DataError("nothing was measured", where=where, seen=f"no {', '.join(MEASURED[:4])}", expected=expected)
    for name in MEASURED[:4]:
        if name in values and as_printed(values[name]).strip(" 0.") == "":
            fix = "leave it out where it was not measured"
            raise DataError(
                "nothing was measured",
                where=f"{where}, {name}",
                seen=values[name],
                expected="a number above zero",
                fix=fix,
            )
    model = _model(values, where=where)
    return {"id": f"run {place}"} | {name: value for name, value in values.items() if name != "model"}, model


def as_printed(value: object) -> str:
    """Returns a JSON value as tables print it."""
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _model(run: Mapping[str, Any], *, where: str) -> ModelSpec | None:
    """Returns the model that a run names; None where it has a shape of its own."""
    if "model" not in run:
        return None
    twice = [name for name in SHAPE if name in run]
    if twice:
        raise DataError("a model has its shape", where=where, seen=f"model and {twice[0]}", fix="leave one of them out")
    model = read_model(str(run["model"]), where=f"{where}, model")
    if model.sees_images:
        raise DataError("no model of text", where=f"{where}, model", seen=run["model"], expected="a transformer")
    return transformer(model)
