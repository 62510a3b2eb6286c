"""Look closely at a few steps of a training: where their time goes, on every rank, operator by operator.

The steps run beside the training, from its newest checkpoint before them or from the start; nothing of the run changes.
Written are a trace for chrome://tracing or ui.perfetto.dev, memory over time and, as a picture, one step of all ranks.
"""

from __future__ import annotations

import argparse
import re

from trainwright.cli.arguments import add_recipe_step, load_recipe, located, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.core.errors import RecipeError

WORK = "trainwright.stages.train.observe.profiled:profile_run"
PICTURE = "step.svg"


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe_step(parser)
    parser.add_argument("--steps", metavar="FIRST-LAST", default="20-25", help="updates, from 1 (default: 20-25)")


def run(args: argparse.Namespace) -> int:
    """Profile, print a table of phases and operators, and say where the files are."""
    from trainwright.core.paths import read_object
    from trainwright.core.records import from_json
    from trainwright.pipeline.observing import look
    from trainwright.planner.evidence.profile import FILE, FORMAT, Profile
    from trainwright.render.results.profile import draw, show

    first, last = steps_of(args.steps)
    output, loaded = Output.of(args), load_recipe(args)
    root = workspace_of(args, name=loaded.value.name)
    with located(loaded), output.progress() as progress:
        folder = look(
            loaded.value,
            root=root,
            step=args.step,
            into=f"profile-{first}-{last}",
            last=last,
            option="--steps",
            work=WORK,
            listeners=(progress,),
            options={"first": first, "last": last},
        )
    document = read_object(folder / FILE)
    profile = from_json(Profile, document, where=str(folder / FILE))
    draw(profile, folder / PICTURE)
    payload = {"folder": folder, "picture": folder / PICTURE, "profile": document}
    output.result(payload, lambda: show(profile, output), version=FORMAT)
    output.note(f"written: {folder}; open its traces in https://ui.perfetto.dev")
    return 0


def steps_of(text: str) -> tuple[int, int]:
    """Returns the first and the last update of ``20-25``, or twice the one of ``20``.

    Raises:
        RecipeError: it says no such range.
    """
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise RecipeError(
            "not a range of steps", where="--steps", seen=repr(text), expected="FIRST-LAST, from 1: 20-25"
        )
    return first, last
