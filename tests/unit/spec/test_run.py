"""A run knows which kind of network it has, and refuses the other by name."""

import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import stack
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Workload

WORK = Workload(sequence_tokens=1, batch_tokens=64, steps=1, precision="bf16", optimizer="adamw")


def run(name):
    return RunSpec(model=model(name), workload=WORK, cluster=cluster("8xh100-sxm"), stack=stack("default"))


def test_a_run_hands_out_the_kind_of_network_that_it_has():
    assert run("llama3-8b").transformer.layers == 32
    assert run("resnet-50").convnet.classes == 1000


def test_the_other_kind_is_refused_by_name():
    with pytest.raises(RecipeError, match="for transformers.*resnet"):
        _ = run("resnet-50").transformer
    with pytest.raises(RecipeError, match="for convolutional networks.*llama"):
        _ = run("llama3-8b").convnet
