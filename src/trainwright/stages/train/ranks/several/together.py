"""Training by several commands: the first one calls the others to it, and each brings its ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.launcher.api import LaunchConfig

from trainwright.artifact.events import Events
from trainwright.artifact.reading import PLAN, read_plan
from trainwright.artifact.stage import Context, StageResult
from trainwright.artifact.store import MANIFEST
from trainwright.core.errors import TrainingError
from trainwright.core.fingerprint import file_digest
from trainwright.core.place import Place
from trainwright.spec.plan import Plan
from trainwright.spec.recipe import Recipe
from trainwright.stages.train.ranks.rank import RankTask, train_as_rank
from trainwright.stages.train.ranks.restarts import Several, on_fewer_hosts, with_restarts
from trainwright.stages.train.ranks.several.hosts import Hosts, end_together
from trainwright.stages.train.ranks.several.meeting import Meeting, meeting
from trainwright.stages.train.ranks.start import agent, launch, result_in, task_of
from trainwright.stages.train.ranks.watch import HostsGone, RankFault
from trainwright.stages.train.world import MEETING

SHARED = "not there: the workspace must lie on a file system that all nodes share"


@contextmanager
def together(place: Place, recipe: Recipe) -> Iterator[None]:
    """Comes to the other commands; one that does not lead trains with them here, until there is nothing more to train.

    Raises:
        TrainwrightError: the others cannot be reached, or differ, or a training failed.
    """
    with meeting(place, recipe) as here:
        if not place.leads:
            for name, told in here.calls():
                _follow(here, name, told)
        token = MEETING.set(here)
        try:
            yield
        finally:
            MEETING.reset(token)


def call_and_train(context: Context, plan: Plan) -> StageResult:
    """Trains with all commands, as the one that leads; returns what came of it.

    Raises:
        RecipeError: the plan, which ``layout: auto`` leaves it to, has other ranks than the launcher started.
        RecipeErrors: another command sees other inputs.
        TrainwrightError: as ``train``, or a rank of this command ended.
    """
    here = MEETING.get()
    assert here is not None
    here.place.check(plan.parallel.ranks)
    task = task_of(context, plan)
    name = here.call(_told(task))
    here.agree(f"{name}/inputs", _seen(task.inputs, task.out))
    _train(here, replace(task, group=name), context.events)
    return result_in(context.out, context.recipe)


def _follow(here: Meeting, name: str, told: Mapping[str, Any]) -> None:
    inputs = {role: Path(path) for role, path in told["inputs"].items()}
    out = Path(told["out"])
    here.agree(f"{name}/inputs", _seen(inputs, out))
    task = RankTask(
        recipe=Recipe.model_validate(told["recipe"]),
        plan=read_plan(inputs["plan"] / PLAN),
        inputs=inputs,
        digests=told["digests"],
        out=out,
        root=Path(told["root"]),
        group=name,
    )
    _train(here, task, Events(None, run=task.recipe.name, rank=here.place.rank))


def _train(here: Meeting, task: RankTask, events: Events) -> None:
    """Trains as the rank that this command is, or with the ranks of its node."""
    place = here.place
    if not place.trains:
        _train_on_node(here, task, events)
        return
    found = PrefixStore(task.group, here.store), place.rank, place.commands
    train_as_rank(task, events, local_rank=place.local_rank, found=found)


def _train_on_node(here: Meeting, task: RankTask, events: Events) -> None:
    """Trains with this node's ranks, and begins again with all nodes, or fewer, as often as the recipe allows."""
    met, attempts, questions = here, itertools.count(1), itertools.count(1)

    def launched(task: RankTask) -> None:
        place = met.place
        here_now = replace(task, group=f"{task.group}-{next(attempts)}")
        configuration = node_configuration(place, here_now, met.limit_s)

        def launch_here(hosts: Hosts) -> None:
            launch(here_now, configuration, events, node=place.rank, others=hosts)

        end_together(met, here_now.group, task.recipe.train.exec.hang_after, launch_here)

    def agreed(gone: bool) -> bool:
        about = f"{task.group}/gone-{next(questions)}"
        return met.of_the_first(about, "gone" if gone else "here") == "gone"

    def without(fault: RankFault | HostsGone, plan: Plan) -> Plan | None:
        nonlocal met
        place = met.place
        gone = _nodes_of(fault, plan.parallel.ranks // place.commands)
        fewer = on_fewer_hosts(plan, place.commands, gone=len(gone))
        if 0 in gone or fewer is None:  # node 0 serves the place where all meet
            return None
        if place.rank in gone:
            raise TrainingError("the other nodes go on without this one", where="train", seen=fault.what)
        met = met.without(gone)
        return fewer

    with_restarts(task, events, launched, several=Several(here.place.rank, agreed, without))


def _nodes_of(fault: RankFault | HostsGone, ranks_per_node: int) -> set[int]:
    """Returns the numbers of the nodes that a fault is of."""
    return {fault.rank // ranks_per_node} if isinstance(fault, RankFault) else {each.node for each in fault.hosts}


def node_configuration(place: Place, task: RankTask, limit_s: float) -> LaunchConfig:
    """Returns how a node's agent starts its ranks.

    Their numbers are static: rank 0 must lie on the node of the command that leads, and torch's c10d backend numbers
    nodes as they come. Agents meet where commands did: all stores of one process share the server of a port.
    """
    return agent(
        task.plan.parallel.ranks // place.commands,
        nodes=place.commands,
        run_id=task.group,
        rdzv_backend="static",
        rdzv_endpoint=place.endpoint,
        rdzv_configs={"rank": place.rank, "timeout": max(1, round(limit_s))},
    )


def _told(task: RankTask) -> dict[str, Any]:
    return {
        "recipe": task.recipe.model_dump(mode="json", by_alias=True),
        "inputs": {role: str(path.absolute()) for role, path in task.inputs.items()},
        "digests": dict(task.digests),
        "out": str(task.out.absolute()),
        "root": str(task.root.absolute()),
    }


def _seen(inputs: Mapping[str, Path], out: Path) -> dict[str, str]:
    """Returns each input's digest, as this command sees it: a manifest names the digests of all files."""
    seen = {}
    for role, path in inputs.items():
        manifest = path / MANIFEST
        seen[f"digest of {role}"] = file_digest(manifest) if manifest.is_file() else SHARED
    return seen | {"folder of work under way": "there" if out.is_dir() else SHARED}
