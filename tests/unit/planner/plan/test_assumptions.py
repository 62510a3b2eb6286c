"""Every number that a plan did not get from the user has an origin and a source, and appears only where it matters."""

from dataclasses import replace

import pytest

from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.planner.plan.assumptions import RANK_HOST_BYTES
from trainwright.planner.plan.cluster import planned
from trainwright.planner.plan.layout import parse_layout
from trainwright.planner.plan.question import Question
from trainwright.planner.plan.scenario import resolve

DENSE = Question(model=catalogue_model("llama3-8b"), on="8xh100-sxm", tokens=10**10, price=2.0)
MIXTURE = Question(
    model=catalogue_model("mixtral-8x7b"), on="4x8xh100-sxm", tokens=10**10, price=2.0, layout=parse_layout("ep=8")
)


def noted(question):
    made = planned(resolve(question))
    return {each.name: each for each in made.plan.estimate.assumptions}


@pytest.mark.parametrize("question", [DENSE, MIXTURE], ids=["dense", "mixture"])
def test_every_assumption_has_an_origin_and_a_source(question):
    for name, each in noted(question).items():
        assert each.origin in ("given", "catalog", "default", "probed", "ledger"), name
        assert each.source or each.origin == "given", name


def test_mixtures_say_how_full_the_fullest_rank_is_and_dense_models_do_not():
    dense, mixed = noted(DENSE), noted(MIXTURE)
    assert not {"load of the fullest rank of experts", "tokens to experts"} & set(dense)
    assert mixed["load of the fullest rank of experts"].value >= 1
    made = noted(replace(MIXTURE, expert_imbalance=1.5))["load of the fullest rank of experts"]
    assert (made.value, made.origin) == (1.5, "given")


def test_drives_are_assumed_where_states_live_on_them():
    assert "NVMe of a node" not in noted(DENSE)
    moved = noted(replace(DENSE, layout=parse_layout("offload=optimizer-nvme,dp_shard=8")))
    assert "reads" in moved["NVMe of a node"].value


def test_spot_nodes_are_taken_back():
    assert "a spot node until it is taken back" not in noted(DENSE)
    assert noted(DENSE)["host memory of a rank"].value == RANK_HOST_BYTES / 1e9
