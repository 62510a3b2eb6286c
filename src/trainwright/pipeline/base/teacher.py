"""Whether a training can learn from its teacher: known from shapes, headers and tokenizers."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from trainwright.artifact.hub.base import base_folder, is_on_hub, is_whole
from trainwright.artifact.weight_headers import check_headers
from trainwright.core.errors import DataError, RecipeError, TrainwrightError
from trainwright.core.registry import load
from trainwright.pipeline.base.weights import LOADERS, read_base_shape
from trainwright.spec.recipe import Recipe
from trainwright.spec.sections.tasks.keys import DistillSection

KEY = "task.teacher"
CHECK = "trainwright.model.tasks.distillation.teacher:check_teacher"


def teacher_problems(recipe: Recipe, tokenizer: Path | None, *, load_torch: bool) -> Iterator[TrainwrightError]:
    """Yields why a training cannot learn from the model that it names; nothing where it names none.

    Args:
        recipe: of the training.
        tokenizer: the tokenizer.json of its dataset, where it is known.
        load_torch: whether weights are held against their network, without values, and the tokenizer against the
            dataset's; else, and where torch is not installed, the files' headers say whether they are whole.
    """
    if not isinstance(recipe.task, DistillSection):
        return
    try:
        folder = base_folder(recipe.task.teacher, weights=load_torch)
        if not folder.is_dir():
            expected = "a checkpoint, a bundle, a Hugging Face directory or hf://OWNER/NAME"
            raise DataError("no such directory", where=KEY, seen=recipe.task.teacher, expected=expected)
        shape = read_base_shape(folder)
        own = recipe.data.tokenizer
        if shape is not None and own.path is None and own.vocabulary < shape.vocabulary:
            raise RecipeError(
                "the teacher has more tokens than the tokenizer that is trained for this recipe",
                where="data.tokenizer",
                seen=f"{shape.vocabulary}, at most {own.vocabulary}",
                fix=f"set data.tokenizer.kind=pretrained and data.tokenizer.path={folder / 'tokenizer.json'}",
            )
        if load_torch and all(find_spec(name) is not None for name in LOADERS):
            load(CHECK, kind="check")(folder, tokenizer, sequence_tokens=recipe.train.sequence_tokens)
        elif is_whole(folder) or not is_on_hub(recipe.task.teacher):
            check_headers(folder)
    except TrainwrightError as error:
        ours = error.where in (KEY, "data.tokenizer")
        yield error if ours else error.at(KEY, seen=": ".join(str(each) for each in (error.where, error.seen) if each))
