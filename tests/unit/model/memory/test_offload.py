"""Saved tensors that leave and come back: the same gradients to the bit, and the bytes that a plan counts."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest
import torch

from trainwright.core.errors import RecipeError
from trainwright.model.decoder import Decoder
from trainwright.model.memory.offload import HostActivations, offload_activations
from trainwright.planner.counts.saved.activations import saved_bytes
from trainwright.planner.counts.saved.micro_batch import MicroBatch
from trainwright.runtime.device import DTYPES
from trainwright.runtime.memory import SavedBytes
from trainwright.spec.stack import STASH


def network_of(tiny, family="llama", *, recompute="none", dtype=torch.float32):
    network = Decoder(tiny.spec(family, layers=3, context_tokens=64), recompute=recompute, dtype=dtype)
    network.initialise(0)
    return network


def gradients(network, *, batches=2):
    network.zero_grad()
    for batch in range(batches):
        ids = torch.arange(2 * 64).reshape(2, 64).add(batch) % network.spec.vocabulary
        with network.keeping():
            hidden = network(ids)
        hidden.square().sum().backward()
    return {
        name: parameter.grad.clone() for name, parameter in network.named_parameters() if parameter.grad is not None
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_gradients_are_the_same_bits(tiny, family, recompute, dtype):
    network = network_of(tiny, family, recompute=recompute, dtype=dtype)
    plain = gradients(network)
    host = HostActivations(network)
    network.keeping = host.keeping
    moved = gradients(network)
    assert host.gone_bytes > 0
    assert plain.keys() == moved.keys()
    for name, gradient in plain.items():
        assert torch.equal(moved[name], gradient), name


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_each_storage_that_the_plan_counts_crosses_once(tiny, family, recompute, dtype):
    """But for those that are too small, and positions beside blocks that are computed again."""
    network = network_of(tiny, family, recompute=recompute, dtype=DTYPES[dtype])
    host = HostActivations(network)
    with host.keeping():
        hidden = network(torch.zeros(4, 64, dtype=torch.long))
    assert hidden.requires_grad
    batch = MicroBatch(sequences=4, sequence_tokens=64, dtype=dtype, device_kind="cpu")
    counted = saved_bytes(network.spec, batch, recompute=recompute)
    assert counted * 0.97 < host.gone_bytes <= counted


def test_no_more_than_the_stash_stays_on_the_device(tiny):
    network = network_of(tiny)
    host = HostActivations(network)
    with host.keeping():
        hidden = network(torch.zeros(2, 64, dtype=torch.long))
    gc.collect()
    alive = [saved for saved in host.waiting if saved.here is not None]
    assert len(alive) == STASH < len(host.waiting)
    counter = SavedBytes(network.parameters())
    with counter.counting():
        network(torch.zeros(2, 64, dtype=torch.long))
    assert sum(saved.host.nbytes for saved in alive) <= counter.largest_bytes(STASH) < counter.total_bytes
    del alive
    hidden.sum().backward()
    gc.collect()
    assert not len(host.waiting), "nothing is kept once the backward pass has used it"


def test_a_processor_is_refused(tiny):
    with pytest.raises(RecipeError, match=r"train\.activation_offload.*set train\.activation_offload=false"):
        offload_activations(network_of(tiny))


COMPILED = """
import torch
from trainwright.model.build import build_network
from trainwright.model.memory.offload import HostActivations
from trainwright.spec.sections.model import ModelSection

tokens = torch.randint(0, 61, (2, 64), generator=torch.Generator().manual_seed(1))
network = build_network(ModelSection(layers=2, width=32, heads=4, context_tokens=64).spec(vocabulary=61))
network.initialise(5)
run, host, gradients = torch.compile(network, backend="aot_eager"), HostActivations(network), []
for offload in (True, False):
    network.zero_grad()
    if offload:
        with host.keeping():
            hidden = run(tokens)
    else:
        hidden = run(tokens)
    network.logits(hidden).square().mean().backward()
    gradients.append([parameter.grad.clone() for parameter in network.parameters()])
assert host.gone_bytes > 0
assert all(map(torch.equal, *gradients))
print("equal")
"""


def test_compiled_passes_send_what_they_save_too():
    """In a process without run-time shape checks, which torch.compile cannot see through."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "equal", done.stderr[-2000:]
