"""Adapters that PEFT wrote become a model of our own: their factors with ``adapters.json``, and a base elsewhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from trainwright.artifact.checkpoint.conversion import new_folder
from trainwright.artifact.hub.base import SCHEME, base_folder
from trainwright.artifact.model_folder import (
    ADAPTERS,
    CHAT_TEMPLATE,
    SHAPE_FILE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    WEIGHTS,
    read_shape,
)
from trainwright.artifact.weight_headers import model_digest
from trainwright.core.errors import DataError
from trainwright.core.paths import read_object
from trainwright.core.records import to_json
from trainwright.model.adapters.peft import CONFIG, QUANTISATION, read
from trainwright.model.weights import save_weights
from trainwright.spec.parts.adaptation import Adaptation, BaseModel


def import_adapters(directory: Path, folder: Path, *, base: str | None = None) -> int:
    """Writes adapters of PEFT's as a model that every command takes, merged where it is used; returns its bytes.

    Args:
        directory: with ``adapter_config.json`` and ``adapter_model.safetensors``; ``quantization_config.json`` beside
            them says that they were trained beside what nf4 makes of the base.
        folder: that is written.
        base: the folder of the model that they stand beside, or ``hf://OWNER/NAME``; None: the one that PEFT names.

    Raises:
        DataError: a file is missing or damaged, or the adapters belong to another base; names it.
        RecipeError: the folder exists.
        MachineError: it cannot be written, and nothing of it is left; or the hub cannot be reached.
    """
    config = read_object(directory / CONFIG)
    under = base_folder(_named(config, directory) if base is None else base, weights=True)
    spec = read_shape(under)
    adapters = read(directory, spec)
    adaptation = Adaptation(
        modules=adapters.modules,
        base=BaseModel(path=str(under.resolve()), digest=model_digest(under)),
        magnitude=adapters.magnitude,
        frozen="nf4" if (directory / QUANTISATION).is_file() else "auto",
    )
    with new_folder(folder) as partial:
        for name, said in ((SHAPE_FILE, spec), (ADAPTERS, adaptation)):
            (partial / name).write_text(json.dumps(to_json(said), indent=1) + "\n", encoding="utf-8")
        save_weights(partial / WEIGHTS, adapters.tensors)
        for name in (TOKENIZER, CHAT_TEMPLATE, TOKENIZER_CONFIG):
            found = next((each / name for each in (directory, under) if (each / name).is_file()), None)
            if found is not None:
                shutil.copyfile(found, partial / name)
    return sum(path.stat().st_size for path in folder.iterdir())


def _named(config: dict[str, Any], directory: Path) -> str:
    """Returns the base that PEFT names: a folder here, or a model of the hub.

    Raises:
        DataError: it names none.
    """
    name, revision = config.get("base_model_name_or_path"), config.get("revision")
    if not isinstance(name, str) or not name:
        fix = "say it with --base"
        raise DataError("these adapters name no base", where=directory / CONFIG, seen=repr(name), fix=fix)
    if Path(name).is_dir():
        return name
    if name.count("/") != 1 or name.startswith((".", "~")):
        fix = "put it there, or say with --base where it is"
        raise DataError("the base of these adapters is not there", where=directory / CONFIG, seen=name, fix=fix)
    return SCHEME + name + (f"@{revision}" if isinstance(revision, str) and revision else "")
