"""What devices send, held to the papers' volumes on a network where bytes are all that counts."""

from dataclasses import fields, replace

import numpy as np
import pytest

from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.adapters import adapter_parameters
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.forecast.communication import dispatch as dispatch_module
from trainwright.planner.forecast.communication import exchange as module
from trainwright.planner.forecast.communication.exchange import Exchange, exchange
from trainwright.planner.forecast.communication.messages import messages
from trainwright.spec.device import ClusterSpec, LinkSpec, NodeSpec
from trainwright.spec.run import RunSpec
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

WORK = Workload(sequence_tokens=2048, batch_tokens=2048 * 96, steps=1, precision="bf16", optimizer="adamw")
LLAMA, MIXTRAL = catalogue_model("llama3-8b"), catalogue_model("mixtral-8x7b")
PARAMETERS = total_parameters(LLAMA)
NODE = cluster("8xh100-sxm")
WIRED = cluster("64x8xh100-sxm")


def sent(*plans, model=LLAMA, work=WORK, on=WIRED, stack="default"):
    run = RunSpec(model=model, workload=work, cluster=on, stack=read_stack(stack))
    return exchange(run, Layouts.of(plans, ["none"] * len(plans), work))


class Meter:
    """In place of the collectives: bytes that one rank sends by ring algorithms, per axis."""

    def __init__(self, monkeypatch):
        for name in ("all_gather_s", "reduce_scatter_s"):
            monkeypatch.setattr(module, name, self.share)
        monkeypatch.setattr(module, "all_reduce_s", lambda *args: 2 * self.share(*args))
        monkeypatch.setattr(module, "send_recv_s", lambda fabric, size, group: size * (np.asarray(group.ranks) > 1))

    @staticmethod
    def share(fabric, size, group):
        return size * (np.asarray(group.ranks) - 1) / group.ranks


@pytest.fixture
def meter(monkeypatch):
    return Meter(monkeypatch)


# ------------------------------------------------------------------------------------------------------ tensor parallel
def test_a_block_has_two_all_reduces_in_each_pass(meter):
    """Shoeybi et al. (2019, section 3): of s b h elements each; Korthikanti et al. (2022, section 4.2.2): split into
    all-gathers and reduce-scatters they move as much.
    """
    tp = 8
    split, whole = sent(*(ParallelPlan(tp=tp, sequence_parallel=each) for each in (True, False))).tensor_s
    ring = 2 * (tp - 1) / tp * 2 * 2048 * LLAMA.width
    assert whole == pytest.approx(LLAMA.layers * 2 * ring)
    assert split == pytest.approx(whole)


def test_one_device_sends_nothing():
    exchanged = sent(ParallelPlan(), on=cluster("h100-sxm"))
    names = [field.name for field in fields(Exchange) if not field.name.endswith("overlapped")]
    assert [float(np.max(getattr(exchanged, name))) for name in names] == [0.0] * len(names)


def test_an_axis_of_one_sends_nothing():
    exchanged = sent(ParallelPlan(tp=8, dp_replicate=64))
    for name in ("context_s", "expert_s", "pipeline_s", "gather_s", "scatter_s"):
        assert getattr(exchanged, name)[0] == 0, name
    assert exchanged.tensor_s[0] > 0 < exchanged.gradients_s[0]


# -------------------------------------------------------------------------------------------------------- data parallel
def test_zero_moves_as_much_as_data_parallelism_and_stage_three_half_as_much_again(meter):
    """Rajbhandari et al. (2020, section 7): 2 x parameters for stages 0 to 2, 3 x for stage 3, gradients as wide as
    weights; here without activation recomputation and with one micro batch.
    """
    work = replace(WORK, states="pure")
    ranks = 64
    plans = [ParallelPlan(dp_shard=ranks, zero_stage=each) for each in (0, 1, 2, 3)]
    exchanged = sent(*plans, work=work)
    once = exchanged.gradients_s + 2 * exchanged.gather_s + exchanged.scatter_s
    volume = 2 * PARAMETERS * (ranks - 1) / ranks
    assert once.tolist() == pytest.approx([2 * volume, 2 * volume, 2 * volume, 3 * volume])
    assert exchanged.gather_s.tolist() == pytest.approx([0, 0, 0, volume])
    # Stage 2 keeps no whole gradients: it scatters those of every micro batch (section 5.2).
    assert exchanged.scatter_s.tolist() == pytest.approx([0, 0, volume, volume])
    assert exchanged.gradients_s.tolist() == pytest.approx([2 * volume, 2 * volume, volume, 0])


def test_pipelines_scatter_gradients_once_a_step(meter):
    one, two = (ParallelPlan(dp_shard=8, pp=8, zero_stage=stage) for stage in (1, 2))
    exchanged = sent(one, two)
    assert exchanged.scatter_s.tolist() == [0, 0]
    assert exchanged.gradients_s[0] == exchanged.gradients_s[1] > 0


def test_gradients_in_fp32_are_twice_as_wide(meter):
    narrow = sent(ParallelPlan(dp_replicate=64), work=replace(WORK, states="pure")).gradients_s
    assert sent(ParallelPlan(dp_replicate=64)).gradients_s == pytest.approx(2 * narrow)


def test_updated_weights_are_gathered_as_products_want_them(meter):
    """ZeRO-1 of mixed states: gradients in fp32 are scattered, weights in bf16 gathered (Megatron Core's distributed
    optimizer); where a stack reduces gradients in bf16 both take two bytes.
    """
    share = 63 / 64 * PARAMETERS
    for name, width in (("megatron-core", 4 + 2), ("megatron-bridge", 2 + 2)):
        work = replace(WORK, states="mixed")
        exchanged = sent(ParallelPlan(dp_shard=64, zero_stage=1), work=work, stack=name)
        assert exchanged.gradients_s[0] == pytest.approx(width * share)


def test_shards_alone_cross_the_replicas(meter):
    """Hybrid sharding: each rank reduces its shard over the replicas, whatever the shards were made of."""
    plans = [
        ParallelPlan(dp_shard=8, dp_replicate=8),
        ParallelPlan(dp_shard=4, cp=2, dp_replicate=8),
        ParallelPlan(dp_shard=1, cp=8, dp_replicate=8),
    ]
    by_hand = 2 * (7 / 8) * 4 * PARAMETERS / 8
    assert sent(*plans).gradients_s.tolist() == pytest.approx([by_hand] * 3)


def test_context_ranks_alone_can_share_weights(meter):
    exchanged = sent(ParallelPlan(cp=8), ParallelPlan(dp_shard=8))
    assert exchanged.gather_s[0] == pytest.approx(exchanged.gather_s[1])
    assert exchanged.gradients_s.tolist() == [0, 0]


def test_divided_experts_are_gathered_by_the_ranks_that_hold_the_same(meter):
    """8 ranks, 8 experts: with ep=8 each expert has one owner, and nothing of it is gathered or reduced."""
    plans = [ParallelPlan(dp_shard=8, ep=each) for each in (1, 2, 8)]
    experts = 3 * MIXTRAL.width * MIXTRAL.ffn_width * 8 * MIXTRAL.layers
    dense = total_parameters(MIXTRAL) - experts
    by_hand = [2 * dense * 7 / 8 + 2 * experts / ep * (8 / ep - 1) / (8 / ep) for ep in (1, 2, 8)]
    assert sent(*plans, model=MIXTRAL).gather_s.tolist() == pytest.approx(by_hand)


def test_replicas_of_divided_experts_reduce_all_that_a_rank_owns(meter):
    experts = 3 * MIXTRAL.width * MIXTRAL.ffn_width * 8 * MIXTRAL.layers
    dense = total_parameters(MIXTRAL) - experts
    owned = dense / 8 + experts / 8  # eight ranks hold one expert of eight each, or an eighth of all
    plans = [ParallelPlan(dp_shard=8, dp_replicate=4, ep=each) for each in (1, 2, 8)]
    by_hand = 2 * (3 / 4) * 4 * owned
    assert sent(*plans, model=MIXTRAL).gradients_s.tolist() == pytest.approx([by_hand] * 3)


def test_adapters_exchange_their_own_gradients_and_gather_frozen_weights(meter):
    adapter = Adapter(rank=8)
    exchanged = sent(ParallelPlan(dp_replicate=8), ParallelPlan(dp_shard=8), work=replace(WORK, adapter=adapter))
    gradient_bytes = 4 * adapter_parameters(LLAMA, adapter)
    assert exchanged.gradients_s[0] == pytest.approx(2 * (7 / 8) * gradient_bytes)
    assert exchanged.scatter_s[1] == pytest.approx(7 / 8 * gradient_bytes)
    assert exchanged.gather_s[1] == pytest.approx(2 * PARAMETERS * 7 / 8)


# ------------------------------------------------------------------------------------------- experts, context, pipeline
def test_every_token_goes_to_its_experts_and_comes_back(monkeypatch):
    monkeypatch.setattr(dispatch_module, "all_to_all_s", Meter.share)
    work = replace(WORK, expert_imbalance=1.0)
    exchanged = sent(*(ParallelPlan(dp_shard=8, ep=each) for each in (1, 4, 8)), model=MIXTRAL, work=work).expert_s
    tokens = 2 * 2048 * MIXTRAL.width * MIXTRAL.experts.active
    assert exchanged.tolist() == pytest.approx([MIXTRAL.layers * 2 * tokens * (ep - 1) / ep for ep in (1, 4, 8)])


def test_all_wait_for_the_fullest_rank_of_experts():
    plan, long = ParallelPlan(dp_shard=64, ep=8), replace(WORK, sequence_tokens=1 << 20, batch_tokens=1 << 27)
    even, uneven = (sent(plan, model=MIXTRAL, work=replace(long, expert_imbalance=each)) for each in (1.0, 2.0))
    assert uneven.expert_s[0] == pytest.approx(2 * even.expert_s[0], rel=0.01)  # but for latency


def test_deepseeks_software_sends_a_third_of_the_bytes():
    """A token's eight experts are on at most four of eight nodes, and go there in fp8: 1.03 + 2 bytes for 3.2 nodes
    each instead of 2 x 2 for 7, where the network is what all wait for.
    """
    model, work = catalogue_model("deepseek-v3"), replace(WORK, sequence_tokens=4096, precision="fp8")
    plan, on = ParallelPlan(pp=16, dp_shard=128, ep=64, zero_stage=1), cluster("256x8xh800-sxm")
    shape = Layouts.of([plan], ["none"], work)
    run = RunSpec(model=model, workload=work, cluster=on, stack=read_stack("hai-llm"))
    plain, exchanged = (exchange(replace(run, stack=read_stack(each)), shape) for each in ("default", "hai-llm"))
    bytes_ = (1 + 4 / 128 + 2) * 3.175 / (4 * 7)
    assert exchanged.expert_s[0] / plain.expert_s[0] == pytest.approx(bytes_, rel=0.2)


def test_context_ranks_gather_keys_and_values(meter):
    """Llama 3 (arXiv 2407.21783, section 3.3.2): all-gathered, as grouped heads make them small."""
    exchanged = sent(ParallelPlan(cp=4)).context_s[0]
    both = 2 * 2 * 2048 * LLAMA.kv_heads * LLAMA.head_size
    assert exchanged == pytest.approx(LLAMA.layers * both * 3 / 4)


def test_stages_send_the_hidden_states_once_for_each_chunk(meter):
    plans = [
        ParallelPlan(pp=4),
        ParallelPlan(pp=4, virtual_stages=2),
        ParallelPlan(pp=4, tp=2),
        ParallelPlan(pp=4, tp=2, sequence_parallel=False),
    ]
    hidden = 2 * 2048 * LLAMA.width
    assert sent(*plans).pipeline_s.tolist() == pytest.approx([hidden, 2 * hidden, hidden / 2, hidden])


# ---------------------------------------------------------------------------------------------------------------- links
def test_slower_links_take_longer():
    plans = [ParallelPlan(tp=8, dp_shard=64), ParallelPlan(dp_shard=512), ParallelPlan(tp=16, dp_replicate=32)]
    slow = cluster("64x8xh100-sxm", scale_up="pcie5", scale_out="100Gb/s")
    for name in ("tensor_s", "gather_s", "scatter_s", "gradients_s"):
        fast, more = (getattr(sent(*plans, on=each).met(1.0, 0.0), name) for each in (WIRED, slow))
        assert np.all(more >= fast) and np.any(more > fast), name


def test_tensor_parallelism_beyond_a_node_pays_for_the_network():
    """Eight ports for eight devices nearly keep up with NVLink; one port does not."""
    for rails, times in ((8, 1), (1, 5)):
        narrow = cluster("64x8xh100-sxm", rails=rails)
        inside, beyond = sent(ParallelPlan(tp=8), ParallelPlan(tp=16), on=narrow).tensor_s
        assert beyond > times * inside


def test_only_the_hosts_bus_is_shared():
    assert NODE.on_own_links
    assert sent(ParallelPlan(tp=8), on=NODE).bus[0] == 0
    desktop = cluster("4xrtx-4090")
    assert not desktop.on_own_links
    assert sent(ParallelPlan(tp=4), on=desktop).bus[0] == pytest.approx(np.log(4))


def test_a_shared_bus_slows_what_goes_over_it_and_not_the_network():
    """Two nodes of eight on PCIe: tensor parallelism stays on the bus, replicas of a whole node meet on the network."""
    servers = cluster("2x8xl40s", scale_out="100Gb/s")
    assert not servers.on_own_links
    exchanged = sent(ParallelPlan(tp=8, dp_replicate=2), on=servers)
    free, shared = exchanged.met(1.0, 0.0), exchanged.met(2.0, 0.5)
    assert shared.tensor_s[0] == pytest.approx(2 * 8**0.5 * free.tensor_s[0])
    assert shared.gradients_s[0] == free.gradients_s[0] > 0


def test_a_ring_over_buses_and_network_is_as_slow_as_the_slower_of_both():
    """One ring through sixteen devices: as over a network alone, until the bus is slower than that."""
    slow, fast = (cluster("2x8xl40s", scale_out=link) for link in ("10Gb/s", "3200Gb/s"))
    for servers, changes in ((slow, False), (fast, True)):
        exchanged = sent(ParallelPlan(dp_replicate=16), on=servers)
        free, shared = exchanged.met(1.0, 0.0).gradients_s[0], exchanged.met(2.0, 0.0).gradients_s[0]
        assert (shared > 1.5 * free) == changes


def test_blocks_are_gathered_one_by_one_with_the_latency_of_each():
    """A model whose bytes take no time still waits for every block's collective."""
    small = replace(LLAMA, width=128, ffn_width=256, vocabulary=128, heads=1, kv_heads=1, head_size=128)
    deep = replace(small, layers=4 * small.layers)
    plan = ParallelPlan(dp_shard=512)
    few, many = (sent(plan, model=each).gather_s[0] for each in (small, deep))
    assert many == pytest.approx(few * (deep.layers + 1) / (small.layers + 1), rel=0.05)


def test_devices_without_a_link_cannot_talk():
    lonely = ClusterSpec(node=NodeSpec(device=replace(NODE.device, link=None), devices=2))
    with pytest.raises(RecipeError, match="no link between the devices"):
        sent(ParallelPlan(tp=2), on=lonely)
    two = ClusterSpec(
        node=NodeSpec(device=NODE.device, devices=1, scale_up=LinkSpec(name="x", bytes_per_s=1e9)), nodes=2
    )
    with pytest.raises(RecipeError, match="no link between nodes"):
        sent(ParallelPlan(tp=2), on=two)


# ----------------------------------------------------------------------------------------------------------------- Muon
@pytest.mark.parametrize("plan", [{"dp_shard": 8}, {"tp": 8}, {"dp_shard": 4, "tp": 2}, {"dp_replicate": 8}], ids=str)
def test_what_muon_sends_is_what_its_messages_hold(meter, monkeypatch, plan):
    """The trainer's own messages are counted stack by stack, and held to a dry run."""
    monkeypatch.setattr(module, "all_to_all_s", meter.share)
    work, parallel = replace(WORK, optimizer="muon"), ParallelPlan(**plan)
    assert sent(parallel).matrices_s == 0, "AdamW's ranks need no whole matrix"
    run = RunSpec(model=LLAMA, workload=work, cluster=NODE, stack=read_stack("trainwright"))
    axes = {axis: getattr(parallel, axis) for axis in ("dp_shard", "tp")}
    told, plain = (messages(replace(run, workload=each), parallel, passes=1) for each in (work, WORK))
    known = {(each.kind, each.axis): each.size_bytes for each in plain}
    bytes_sent = sum(
        (each.size_bytes - known.get((each.kind, each.axis), 0.0)) * (1 - 1 / axes[each.axis])
        for each in told
        if each.axis in axes
    )
    assert exchange(run, Layouts.of([parallel], ["none"], work)).matrices_s == pytest.approx(bytes_sent)
