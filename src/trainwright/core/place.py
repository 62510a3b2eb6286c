"""``Place``: which of the commands that train together this one is, from what a launcher or the user set.

One command a node (``--nodes``), which starts its node's ranks, or one command a rank, as torchrun and srun start them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from trainwright.core.errors import RecipeError
from trainwright.core.frozen import dataclass

NODE_RANK, RENDEZVOUS = "TRAINWRIGHT_NODE_RANK", "TRAINWRIGHT_RENDEZVOUS"
"""Variables of ``--node-rank`` and ``--rendezvous``."""
TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_NODELIST", "SLURM_JOB_ID")
"""Of srun's steps: the batch script itself has no ``SLURM_STEP_*``, and is one process."""
_SLURM_PORTS = (20_000, 40_000)
"""Where the ports of Slurm's jobs lie: below those that Linux gives to clients."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """One of the commands that train together.

    ``rank`` of ``commands``: its number, 0 leads. ``host`` and ``port``: where they meet. ``trains``: it is a rank
    itself, and starts none. ``served``: its launcher serves the meeting place; else the command of rank 0 does.
    ``attempt``: how often its launcher began again; what commands said there before counts no more.
    """

    rank: int
    commands: int
    host: str
    port: int
    trains: bool = False
    local_rank: int = 0
    served: bool = False
    attempt: int = 0
    launcher: Literal["--nodes", "torchrun", "srun"] = "--nodes"

    @property
    def leads(self) -> bool:
        """Returns whether this command makes plan and dataset, and what of a run is written once."""
        return self.rank == 0

    @property
    def endpoint(self) -> str:
        """Returns HOST:PORT."""
        return f"{self.host}:{self.port}"

    @property
    def noun(self) -> str:
        """Returns what one command is for."""
        return "rank" if self.trains else "node"

    def check(self, ranks: int) -> None:
        """Compares a layout with the processes that are there.

        Raises:
            RecipeError: as many were started as the layout does not have.
        """
        if self.trains and ranks != self.commands:
            raise RecipeError(
                "{launcher} started another number of processes than the layout has ranks",
                where="train.exec.layout",
                seen=self.commands,
                expected=str(ranks),
                fix="start as many, or change the axes of the layout",
                launcher=self.launcher,
            )


def place_of(environ: Mapping[str, str], *, nodes: int | None) -> Place | None:
    """Returns this command's place, or None where it trains without others.

    Args:
        environ: the process's variables.
        nodes: the recipe's ``train.exec.nodes``; None: nothing says how many.

    Raises:
        RecipeError: several nodes without a number or a meeting place, one with those of another, or variables that
            cannot be read.
    """
    if NODE_RANK not in environ and RENDEZVOUS not in environ:
        if _all(TORCHRUN, environ):
            return _of_torchrun(environ)
        if _all(SLURM, environ) and _number(environ, "SLURM_STEP_NUM_TASKS") > 1:
            return _of_slurm(environ)
    if nodes is not None and nodes > 1:
        return _of_nodes(environ, nodes)
    _check_alone(environ, nodes)
    return None


def _check_alone(environ: Mapping[str, str], nodes: int | None) -> None:
    """Refuses what ``--node-rank`` and ``--rendezvous`` say where one node trains, unless they are of the one asked."""
    number, endpoint = environ.get(NODE_RANK), environ.get(RENDEZVOUS)
    said = {"--node-rank": number, "--rendezvous": endpoint}
    for option, value in said.items():
        if value is not None and (nodes is None or (option == "--node-rank" and value != "0")):
            raise RecipeError(
                "{option} {value} needs --nodes",
                where=option,
                seen="one node",
                expected="the same --nodes N on every node",
                option=option,
                value=value,
            )
    if endpoint is not None and not _is_endpoint(endpoint):
        raise RecipeError("no place to meet", where="--rendezvous", seen=repr(endpoint), expected="HOST:PORT")


def _is_endpoint(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdigit() and 0 < int(port) < 1 << 16


def nodes_of(environ: Mapping[str, str]) -> int | None:
    """Returns how many nodes a launcher started commands on; None: no launcher says.

    Raises:
        RecipeError: a variable that cannot be read.
    """
    if _all(TORCHRUN, environ):
        if not environ.get("LOCAL_WORLD_SIZE"):
            return None
        return max(1, _number(environ, "WORLD_SIZE") // max(1, _number(environ, "LOCAL_WORLD_SIZE")))
    if _all(SLURM, environ) and _number(environ, "SLURM_STEP_NUM_TASKS") > 1:
        return _number(environ, "SLURM_STEP_NUM_NODES", "1")
    return _number(environ, "PET_NNODES") if environ.get("PET_NNODES", "").isdigit() else None


def first_host(hosts: str) -> str:
    """Returns the first host of Slurm's list: ``gpu[07-09,12],login`` begins with ``gpu07``."""
    match = re.match(r"([^,\[]*)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", hosts)
    return "" if match is None else "".join(part or "" for part in match.groups())


def _of_torchrun(environ: Mapping[str, str]) -> Place:
    return Place(
        rank=_number(environ, "RANK"),
        commands=_number(environ, "WORLD_SIZE"),
        host=environ["MASTER_ADDR"],
        port=_number(environ, "MASTER_PORT"),
        trains=True,
        local_rank=_number(environ, "LOCAL_RANK"),
        served=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        attempt=_number(environ, "TORCHELASTIC_RESTART_COUNT", "0"),
        launcher="torchrun",
    )


def _of_slurm(environ: Mapping[str, str]) -> Place:
    low, high = _SLURM_PORTS
    port = low + _number(environ, "SLURM_JOB_ID") % (high - low)
    return Place(
        rank=_number(environ, "SLURM_PROCID"),
        commands=_number(environ, "SLURM_STEP_NUM_TASKS"),
        host=environ.get("MASTER_ADDR") or first_host(environ["SLURM_STEP_NODELIST"]),
        port=_number(environ, "MASTER_PORT", str(port)),
        trains=True,
        local_rank=_number(environ, "SLURM_LOCALID"),
        launcher="srun",
    )


def _of_nodes(environ: Mapping[str, str], nodes: int) -> Place:
    """Returns the place that the options say, or Kubeflow's variables (PET_*)."""
    number = environ.get(NODE_RANK) or environ.get("PET_NODE_RANK", "")
    master = f"{environ.get('PET_MASTER_ADDR', '')}:{environ.get('PET_MASTER_PORT', '')}"
    endpoint = environ.get(RENDEZVOUS) or (master if len(master) > 1 else "")
    host, _, port = endpoint.rpartition(":")
    if not (number.isdigit() and int(number) < nodes):
        raise RecipeError(
            "{nodes} nodes train, and this one has {what}",
            where="--node-rank",
            seen=repr(number),
            expected=f"one of 0 to {nodes - 1}, another on every node",
            nodes=nodes,
            what="a number that none of them has" if number.isdigit() else "no number",
        )
    if not _is_endpoint(endpoint):
        raise RecipeError(
            "{nodes} nodes train, and {what}",
            where="--rendezvous",
            seen=repr(endpoint),
            expected="HOST:PORT, a free port (1 to 65535) of the host of node 0, the same on every node",
            nodes=nodes,
            what="this is no place to meet" if endpoint else "have no place to meet",
        )
    return Place(rank=int(number), commands=nodes, host=host.strip("[]"), port=int(port))


def _all(names: tuple[str, ...], environ: Mapping[str, str]) -> bool:
    return all(environ.get(name) for name in names)


def _number(environ: Mapping[str, str], name: str, absent: str = "") -> int:
    text = environ.get(name) or absent
    if not text.isdigit():
        raise RecipeError("this variable is no number", where=name, seen=repr(text), expected="0 or more")
    return int(text)
