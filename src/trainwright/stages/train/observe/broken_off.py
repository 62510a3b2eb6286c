"""One step kept whole: state and batch before it, what it computed, and a script that computes it again to the bit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.artifact.store import open_artifact, write_atomically
from trainwright.core.errors import DataError, TrainwrightError, in_one_line
from trainwright.core.paths import read_object
from trainwright.model.tasks.task import Batch, batch_of
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.stages.train.checkpoints import State
from trainwright.stages.train.observe.child import CHECKPOINTS, begin_at, carry_out, trainer_at
from trainwright.stages.train.step import Update
from trainwright.stages.train.trainer import Trainer
from trainwright.stages.train.world import World

KEPT, COMPUTED, SCRIPT = "kept.json", "computed.json", "repeat.py"
Look = Callable[[Trainer, Batch, float], None]
"""What a script does with a trainer that stands before its step, the batch, and the share of the peak rate."""

TEXT = '''"""Repeats update {step} of {name}: from the state before it, with its batch, to the same bits.

Run it with the Python that trained: python {script}
"""

import sys
from pathlib import Path

from trainwright.stages.train.observe.broken_off import repeat_in_script


def look(trainer, batch, share):
    """Every rank calls this; look at what you like, before or after the step."""
    update = trainer.step(batch, share)
    loss, norm = float(update.loss_sum) / int(update.targets), float(update.grad_norm)
    if trainer.world.leads:
        print(f"update {step}: loss {{loss!r}}, gradient norm {{norm!r}}")


if __name__ == "__main__":
    sys.exit(repeat_in_script(Path(__file__).parent, look))
'''


def break_run(context: Context, *, run: Path | None, step: int) -> None:
    """Trains up to an update and keeps it in ``context.out``.

    Args:
        context: of the training, with a folder of its own to write into.
        run: the run's folder, whose checkpoints may be gone on from; None where there is none.
        step: number of the update, from 1.

    Raises:
        RecipeError: the run is shorter, or the trainer cannot execute the plan.
        TrainwrightError: as training.
    """
    begin_at(context.out, run, step=step - 1)
    kept = {
        "step": step,
        "recipe": context.recipe.model_dump(mode="json", by_alias=True),
        "inputs": {role: str(artifact.path.absolute()) for role, artifact in context.inputs.items()},
        "digests": dict(context.digests),
        "root": str(context.root.absolute()),
    }
    write_atomically(context.out / KEPT, json.dumps(kept, indent=1).encode())
    carry_out(context, partial(broken_off, step=step))
    script = TEXT.format(step=step, name=context.recipe.name, script=(context.out / SCRIPT).absolute())
    write_atomically(context.out / SCRIPT, script.encode())


def broken_off(context: Context, plan: Plan, world: World, *, step: int) -> None:
    """Keeps state and batch as one rank, then makes the update and keeps what it computed."""
    with trainer_at(context, plan, world, step=step - 1, last=step) as trainer:
        if world.leads:
            for borrowed in (context.out / CHECKPOINTS).iterdir():
                borrowed.unlink()
        world.gathered(0)  # nobody writes before the run's own checkpoint is let go
        state = State(network=trainer.network, optimizers=trainer.optimizers, progress=trainer.progress)
        trainer.checkpoints.save(state).wait()
        batch = batch_of(trainer.batches, step - 1, trainer.rows(step - 1))
        save_file({name: tensor.contiguous() for name, tensor in batch.items()}, _batch_file(context.out, world.rank))
        ((update, share),) = trainer.updates(step - 1, step)
    if world.leads:
        write_atomically(context.out / COMPUTED, json.dumps(_computed(update) | {"share": share}).encode())


def _computed(update: Update) -> dict[str, float]:
    return {"loss": float(update.loss_sum) / int(update.targets), "grad_norm": float(update.grad_norm)}


def repeat(folder: Path, look: Look) -> None:
    """Calls ``look`` on every rank, with the trainer as it stood before the kept step.

    Args:
        folder: what ``break_run`` wrote.
        look: where the layout has several ranks, a function at the top of a module or script.

    Raises:
        TrainwrightError: as training.
    """
    kept = read_object(folder / KEPT)
    recipe = Recipe.model_validate(kept["recipe"])
    with Events(None, run=recipe.name) as events:
        context = Context(
            recipe=recipe,
            inputs={role: open_artifact(Path(path)) for role, path in kept["inputs"].items()},
            digests=kept["digests"],
            out=folder,
            events=events,
            root=Path(kept["root"]),
        )
        carry_out(context, partial(_repeated, step=kept["step"], look=look))


def repeat_in_script(folder: Path, look: Look) -> int:
    """Does as ``repeat``; returns the exit code, and prints what went wrong as the command line does, in one line."""
    try:
        repeat(folder, look)
    except TrainwrightError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def _repeated(context: Context, plan: Plan, world: World, *, step: int, look: Look) -> None:
    with trainer_at(context, plan, world, step=step - 1, last=step) as trainer:
        batch = _kept_batch(_batch_file(context.out, world.rank), step)
        trainer.prepare(step - 1)
        look(trainer, batch, float(read_object(context.out / COMPUTED)["share"]))


def _kept_batch(path: Path, step: int) -> dict[str, Any]:
    try:
        return load_file(path)
    except (SafetensorError, FileNotFoundError) as error:
        raise DataError(
            "this batch cannot be read",
            where=path,
            seen=in_one_line(error),
            fix="keep it again: trainwright train RECIPE --break-at {step}",
            step=step,
        ) from error


def _batch_file(folder: Path, rank: int) -> Path:
    return folder / f"batch-rank{rank}.safetensors"
