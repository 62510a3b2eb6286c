"""Write a run's events for other tools, from what training left: losses, rates, phases, memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainwright.cli.output import Output
from trainwright.core.errors import DataError

if TYPE_CHECKING:
    import argparse

    from trainwright.cli.parser import CommandParser

LOG = "events.jsonl"
TOOLS = ("tensorboard", "mlflow", "wandb")
HOW_TO_SEE = {
    "tensorboard": "tensorboard --logdir {folder}",
    "mlflow": "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {folder}",
    "wandb": "wandb sync {folder}",
}


def configure(parser: CommandParser) -> None:
    """Subcommand export."""
    export = parser.add_subcommand("export", "write them as files of TensorBoard, MLflow or Weights & Biases")
    export.add_argument("run_folder", metavar="RUN", type=Path, help="a training's folder, or its events.jsonl")
    export.add_argument("--to", choices=TOOLS, required=True, help="whose files")
    export.add_argument("--out", metavar="DIR", type=Path, default=Path("exported"), help="default: exported")


def run(args: argparse.Namespace) -> int:
    """Write the files and say how to see them."""
    from trainwright.artifact.store import writing
    from trainwright.render.event_files import FORMS, points

    output, log = Output.of(args), log_of(args.run_folder)
    told = points(log)
    with writing(args.out, field="--out"):
        folder = FORMS[args.to](told, args.out, run=log.absolute().parent.name.removesuffix(".partial"))
    see = HOW_TO_SEE[args.to].format(folder=folder)
    payload = {"events": log, "folder": folder, "points": len(told), "see": see}
    output.result(payload, lambda: output.line(f"{len(told)} numbers: {folder}"))
    output.note(f"to see them: {see}")
    return 0


def log_of(run: Path) -> Path:
    """Returns the events of a training's folder, of the one training in a workspace, or the file itself.

    Raises:
        DataError: there are none, or several trainings.
    """
    trainings = sorted(path.parent for path in run.glob(f"train-*/{LOG}"))
    if len(trainings) > 1:
        names = ", ".join(path.name for path in trainings)
        raise DataError("several trainings", where=run, seen=names, fix=f"name one: {trainings[-1]}")
    path = trainings[0] / LOG if trainings else run / LOG if run.is_dir() else run
    if not path.is_file():
        raise DataError(
            "no events here", where=path, fix="name the folder of a training, train-..., or its events.jsonl"
        )
    return path
