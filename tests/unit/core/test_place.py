"""A command's place, from variables as torchrun, srun, Kubeflow and the options set them."""

from __future__ import annotations

import pytest

from trainwright.core.errors import RecipeError
from trainwright.core.place import NODE_RANK, RENDEZVOUS, Place, first_host, nodes_of, place_of

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "first",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_LOCALID": "1",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_ID": "123456",
}
OPTIONS = {NODE_RANK: "1", RENDEZVOUS: "first:29400"}


def test_a_command_alone_has_no_place() -> None:
    assert place_of({}, nodes=1) is None
    assert nodes_of({}) is None


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({NODE_RANK: "1", RENDEZVOUS: "foo"}, "--node-rank 1 needs --nodes"),
        (OPTIONS, "--node-rank 1 needs --nodes"),
        ({NODE_RANK: "one"}, "--node-rank one needs --nodes"),
        ({RENDEZVOUS: "foo"}, "no place to meet.*seen 'foo'.*expected HOST:PORT"),
    ],
)
def test_a_number_without_nodes_is_refused(said, line) -> None:
    with pytest.raises(RecipeError, match=line):
        place_of(said, nodes=1)


def test_the_first_of_one_node_trains_alone_where_it_says_that_there_is_one() -> None:
    first = {NODE_RANK: "0", RENDEZVOUS: "first:29400"}
    assert place_of(first, nodes=1) is None
    assert place_of({}, nodes=None) is None
    with pytest.raises(RecipeError, match="--node-rank 0 needs --nodes"):
        place_of(first, nodes=None)
    with pytest.raises(RecipeError, match="--rendezvous first:29400 needs --nodes"):
        place_of({RENDEZVOUS: "first:29400"}, nodes=None)


def test_a_rank_of_torchrun_meets_where_its_agent_serves() -> None:
    place = place_of(TORCHRUN, nodes=1)
    assert place == Place(
        rank=5,
        commands=8,
        host="first",
        port=29500,
        trains=True,
        local_rank=1,
        served=True,
        launcher="torchrun",
    )
    assert (place.leads, place.noun, nodes_of(TORCHRUN)) == (False, "rank", 2)


def test_a_launcher_that_does_not_say_how_many_ranks_a_node_has_says_nothing_of_nodes() -> None:
    assert nodes_of({name: value for name, value in TORCHRUN.items() if name != "LOCAL_WORLD_SIZE"}) is None


def test_a_task_of_srun_meets_on_the_first_host() -> None:
    place = place_of(SLURM, nodes=1)
    assert place is not None
    assert (place.rank, place.commands, place.local_rank, place.host) == (5, 8, 1, "gpu07")
    assert (place.trains, place.served, nodes_of(SLURM)) == (True, False, 2)
    other = place_of(SLURM | {"SLURM_JOB_ID": "123457"}, nodes=1)
    assert other is not None
    assert other.port != place.port, "two jobs of a host meet at two ports"


def test_slurms_batch_script_and_a_single_task_are_one_process() -> None:
    script = {name: value for name, value in SLURM.items() if "STEP" not in name} | {"SLURM_NTASKS": "8"}
    assert place_of(script, nodes=1) is None
    assert place_of(SLURM | {"SLURM_STEP_NUM_TASKS": "1"}, nodes=1) is None


@pytest.mark.parametrize(
    ("hosts", "first"),
    [("a", "a"), ("a,b", "a"), ("gpu[07-09,12],login", "gpu07"), ("n[3,5]", "n3"), ("r[1-2]-ib,x", "r1-ib")],
)
def test_the_first_host_of_a_list(hosts: str, first: str) -> None:
    assert first_host(hosts) == first


def test_a_node_has_the_options_number_and_place_or_kubeflows() -> None:
    place = place_of(OPTIONS | TORCHRUN, nodes=2)
    assert place == Place(rank=1, commands=2, host="first", port=29400)
    kubeflow = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_MASTER_ADDR": "first", "PET_MASTER_PORT": "29400"}
    assert nodes_of(kubeflow) == 2
    assert place_of(kubeflow, nodes=2) == place


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({NODE_RANK: ""}, "--node-rank: 2 nodes train, and this one has no number"),
        ({NODE_RANK: "2"}, "this one has a number that none of them has.*expected one of 0 to 1"),
        ({RENDEZVOUS: ""}, "--rendezvous: 2 nodes train, and have no place to meet"),
        ({RENDEZVOUS: "first"}, "expected HOST:PORT"),
        ({RENDEZVOUS: "first:99999"}, "this is no place to meet.*expected HOST:PORT, a free port .1 to 65535"),
    ],
)
def test_a_node_without_number_or_place_is_refused(changed: dict[str, str], line: str) -> None:
    with pytest.raises(RecipeError, match=line):
        place_of(OPTIONS | changed, nodes=2)


def test_a_variable_that_is_no_number_is_named() -> None:
    with pytest.raises(RecipeError, match=r"WORLD_SIZE: .*seen 'many'"):
        place_of(TORCHRUN | {"WORLD_SIZE": "many"}, nodes=1)


def test_another_number_of_processes_than_ranks_is_refused_with_both() -> None:
    place = place_of(TORCHRUN, nodes=1)
    assert place is not None
    place.check(8)
    with pytest.raises(RecipeError, match=r"torchrun started another number .*seen 8, expected 4"):
        place.check(4)
    Place(rank=0, commands=2, host="first", port=1).check(8)  # a node starts its ranks itself
