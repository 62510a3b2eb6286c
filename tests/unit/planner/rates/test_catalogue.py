"""What the catalogue's numbers come to for one run."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from trainwright.hardware.catalogue.devices import device
from trainwright.hardware.catalogue.efficiency import matmul_reach, read_efficiency
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.nodes import cluster
from trainwright.hardware.catalogue.stacks import stack, stack_names
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.rates.catalogue import (
    Catalogue,
    Rates,
    attention_key,
    beyond,
    bounded,
    factors,
    rates,
    tuned_key,
)
from trainwright.planner.rates.catalogue import reached as kernels_of
from trainwright.spec.run import RunSpec
from trainwright.spec.stack import Stack, StackTime
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

WORK = Workload(sequence_tokens=512, batch_tokens=512 * 64, steps=1, precision="bf16", optimizer="adamw")


LLAMA = catalogue_model("llama3-8b")


EFFICIENCY = replace(
    read_efficiency(),
    products={"hopper": 0.8, "default": 0.5},
    attention={"default": 0.4},
    precisions={"default": 1.0, "fp8": 0.9},
    traffic={"eager": 2.0},
    doubt={"source": 0.1, "adapters": 0.3, "generation": 0.4},
    rows={"hopper": 10**9},
    loss=8.0,
    fused_loss=0.5,
    expert_traffic=3.0,
    bus={"default": 1.5},
    bus_sharing={},
    matmul={},
    seen=(),
)
PLAIN = Stack(name="plain", title="", states="fp32", time=StackTime(compute=2.0, tuned={"hopper-fp8": 1.5}))


def reached(model=LLAMA, on="8xh100-sxm", **changes):
    return rates(RunSpec(model=model, workload=replace(WORK, **changes), cluster=cluster(on), stack=PLAIN), EFFICIENCY)


def test_rates_are_products_of_the_catalogues_numbers():
    kernels_s = reached()
    assert kernels_s.products == pytest.approx(0.8)
    assert kernels_s.attention == pytest.approx(0.8 * 0.4)
    assert (kernels_s.compute, kernels_s.traffic, kernels_s.loss, kernels_s.link) == (2.0, 2.0, 8.0, 1.0)
    eight = reached(precision="fp8", fused_loss=True)
    assert (eight.products, eight.compute, eight.loss) == pytest.approx((0.8 * 0.9, 2.0 * 1.5, 4.0))


def test_no_more_than_all_of_a_message_is_left_exposed():
    run = RunSpec(
        model=LLAMA, workload=WORK, cluster=cluster("8xh100-sxm"), stack=replace(PLAIN, time=StackTime(tensor=4.0))
    )
    found = rates(run, replace(EFFICIENCY, tensor=0.8, expert=1.5, gradients=1.3))
    assert (found.tensor, found.expert, found.context, found.gradients) == (1.0, 1.0, EFFICIENCY.context, 1.3)
    rows = {"tensor": np.array([0.5, 3.66]), "gradients": np.array([1.32])}  # as the fit bounds those of many runs
    assert {name: rate.tolist() for name, rate in bounded(rows).items()} == {"tensor": [0.5, 1.0], "gradients": [1.32]}


def test_attention_stands_by_kernel_where_a_device_can_have_several():
    keys = {name: attention_key(device(name), "flash-2") for name in ("v100-sxm2-32gb", "a100-sxm-80gb", "mi300x")}
    assert keys == {"v100-sxm2-32gb": "volta", "a100-sxm-80gb": "ampere-flash-2", "mi300x": "rocm"}


def test_what_a_table_lacks_is_its_default_and_without_one_nothing_changes():
    kernels_s = reached(on="8xa100-sxm-80gb")
    assert kernels_s.products == pytest.approx(0.5)  # no ampere, no such device, no bf16
    other = RunSpec(model=LLAMA, workload=WORK, cluster=cluster("8xa100-sxm-80gb"), stack=PLAIN)
    named = {factor.name: factor.value for parts in factors(other, EFFICIENCY).values() for factor in parts}
    assert named["stack.tuned.ampere-16"] == 1.0
    assert named["products.ampere"] == 0.5


def test_experts_and_the_hosts_bus_have_their_own():
    assert reached(model=catalogue_model("mixtral-8x7b")).traffic == pytest.approx(6.0)
    assert reached(on="4xrtx-4090").link == 1.5


def test_a_range_is_wider_for_what_published_runs_say_less_of():
    source = Catalogue(efficiency=EFFICIENCY)

    def spread(on="8xh100-sxm", **changes):
        run = RunSpec(model=LLAMA, workload=replace(WORK, **changes), cluster=cluster(on), stack=PLAIN)
        return source.spread(run)

    own = PLAIN.time.spread
    assert spread() == pytest.approx(math.hypot(own, 0.1))
    assert spread(adapter=Adapter(rank=8)) == pytest.approx(math.hypot(own, 0.1, 0.3))
    assert spread(on="8xmi300x") == pytest.approx(math.hypot(own, 0.1, 0.4))
    assert (
        replace(source, deviation=0.05).spread(
            RunSpec(model=LLAMA, workload=WORK, cluster=cluster("h100"), stack=PLAIN)
        )
        == 0.05
    )


def test_attention_that_is_not_fused_runs_as_products_do():
    assert reached(fused_attention=False).attention == reached().products


@pytest.mark.parametrize("name", stack_names())
@pytest.mark.parametrize("device", ["h100-sxm", "mi300x", "tpu-v5p", "rtx-4090", "ascend-910b3", "gaudi3"])
def test_every_stack_has_every_rate_on_every_kind_of_device(name, device):
    on, software, general = cluster(f"8x{device}"), stack(name), read_efficiency()
    rate = rates(RunSpec(model=LLAMA, workload=WORK, cluster=on, stack=software), general)
    for field in fields(Rates):
        value = getattr(rate, field.name)
        assert np.isfinite(value) and value > 0, field.name
    assert rate.products < 1 and rate.attention < 1 and rate.bandwidth <= 1


def test_formats_of_16_bits_share_their_tuning():
    assert tuned_key("hopper", "bf16") == tuned_key("hopper", "fp16") == "hopper-16"
    assert tuned_key("hopper", "fp8") == "hopper-fp8"


def test_every_number_bears_the_name_that_the_catalogue_files_give_it():
    """Names are what a fit writes back: a field, or a table's entry, of ``Efficiency`` or of a stack's times."""
    run = RunSpec(model=LLAMA, workload=WORK, cluster=cluster("4xrtx-4090"), stack=stack("torchtitan"))
    for factor in (each for parts in factors(run, read_efficiency()).values() for each in parts):
        if factor.fixed:
            assert (factor.name, factor.value) == ("matmul", matmul_reach(run.cluster.device, read_efficiency().matmul))
            continue
        owner = run.stack.time if factor.name.startswith("stack.") else read_efficiency()
        table, _, entry = factor.name.removeprefix("stack.").partition(".")
        value = getattr(owner, table)
        assert factor.value == (value.get(entry, value.get("default", 1.0)) if entry else value), factor.name


def test_a_stack_is_less_certain_on_devices_that_none_of_its_runs_had():
    many = {"hopper": 10**9, "blackwell": 10**9}
    general = replace(EFFICIENCY, rows=many, doubt={"untuned": 0.25, "generation": 0.5})
    known = replace(stack("hf-trainer"), time=StackTime(seen=("hopper",), spread=0.1))
    run = RunSpec(model=LLAMA, workload=WORK, cluster=cluster("8xh100-sxm"), stack=known)
    same = Catalogue(efficiency=general)
    assert same.spread(run) == pytest.approx(0.1)
    assert same.spread(replace(run, cluster=cluster("8xb200-sxm"))) == pytest.approx(math.hypot(0.1, 0.25))
    assert same.spread(replace(run, cluster=cluster("8xa100-sxm-80gb"))) == pytest.approx(math.hypot(0.1, 0.5))
    without = replace(known, time=StackTime(spread=0.3))
    assert same.spread(replace(run, stack=without)) == pytest.approx(math.hypot(0.3, 0.25)), "nor was it tuned there"


def test_the_fewer_runs_a_generation_has_the_wider_is_the_range_of_a_stack_without_any_there():
    """As surely as rows are shrunk towards what is assumed: eight of them halve its square."""
    run = RunSpec(model=LLAMA, workload=WORK, cluster=cluster("8xh100-sxm"), stack=stack("default"))
    assert run.stack.time.seen == ()

    def spread(rows):
        return Catalogue(efficiency=replace(EFFICIENCY, rows=rows, doubt={"generation": 0.4})).spread(run)

    own = run.stack.time.spread
    assert spread({}) == spread({"ampere": 500}) == pytest.approx(math.hypot(own, 0.4))
    assert spread({"hopper": 8}) == pytest.approx(math.hypot(own, 0.4 / math.sqrt(2)))
    widths = [spread({"hopper": count}) for count in (0, 2, 13, 99, 400)]
    assert widths == sorted(widths, reverse=True) and widths[-1] == pytest.approx(own, rel=0.02)


def test_a_stack_without_runs_is_less_certain_on_devices_that_hardly_any_run_had():
    """Two published runs had a Pascal, all of one framework; hundreds had an H100."""

    def spread(on, name="default"):
        return Catalogue().spread(RunSpec(model=LLAMA, workload=WORK, cluster=cluster(on), stack=stack(name)))

    assert spread("8xp100-sxm-16gb") > 1.25 * spread("8xh100-sxm")
    assert spread("1xm3-max") == spread("6xmax-1550") > spread("8xp100-sxm-16gb"), "nobody published any there"
    # 13 runs on ROCm are of other frameworks, whose kernels are their own: its products and attention stand at what was
    # assumed of them, and the range knows.
    assert spread("8xmi300x") == spread("1xm3-max")


@pytest.mark.parametrize("on", ["8xmi300x", "8xgaudi2", "8xascend-910b", "8xtpu-v6e"])
def test_a_guess_on_another_vendors_devices_is_wider_than_on_nvidias_and_than_what_was_measured_there(on):
    def spread(name, on):
        run = RunSpec(model=LLAMA, workload=WORK, cluster=cluster(on), stack=stack(name))
        return Catalogue().spread(run)

    kind = cluster(on).device.kind
    measured = [each for each in stack_names() if kind in stack(each).time.seen and stack(each).time_of == each]
    assert measured, "published runs of some software"
    assert spread("default", on) > 1.3 * spread("default", "8xh100-sxm")
    for guess in ("default", "default-parallel", "torchtitan"):
        assert spread(guess, on) > min(spread(each, on) for each in measured), guess


def test_what_is_measured_on_nvidias_devices_is_as_sure_as_before():
    general = read_efficiency().doubt
    for name in ("torchtitan", "megatron-bridge", "megatron-core-ci"):
        run = RunSpec(model=LLAMA, workload=WORK, cluster=cluster("8xh100-sxm"), stack=stack(name))
        assert Catalogue().spread(run) == pytest.approx(math.hypot(run.stack.time.spread, general["source"])), name


def test_a_stack_with_anothers_numbers_is_less_certain_than_it():
    general = replace(EFFICIENCY, doubt={"borrowed": 0.25})
    own = RunSpec(model=LLAMA, workload=WORK, cluster=cluster("8xh100-sxm"), stack=stack("hf-trainer"))
    other = replace(own, stack=stack("llama-factory"))
    spread, same = stack("hf-trainer").time.spread, Catalogue(efficiency=general)
    assert same.spread(own) == pytest.approx(spread)
    assert same.spread(other) == pytest.approx(math.hypot(spread, 0.25))
    assert read_efficiency().doubt["borrowed"] > 0.1


def test_who_has_anothers_numbers_has_no_runs_of_its_own_and_a_few_on_another_vendors_tell_little():
    """megatron-bridge has some thirteen runs on ROCm, and megatron-core its numbers."""

    def spread(name, on):
        run = RunSpec(model=LLAMA, workload=WORK, cluster=cluster(on), stack=stack(name))
        return Catalogue().spread(run)

    assert stack("megatron-core").time_of == "megatron-bridge" and "rocm" in stack("megatron-core").time.seen
    assert spread("megatron-core", "8xmi300x") > 1.2 * spread("megatron-core", "8xh100-sxm")
    assert spread("megatron-core", "8xmi300x") > spread("megatron-bridge", "8xmi300x")
    assert spread("megatron-core", "8xmi300x") > spread("default", "8xmi300x"), "a name makes nothing surer"
    assert spread("megatron-bridge", "8xmi300x") > 1.1 * spread("megatron-bridge", "8xh100-sxm")


def test_each_doubling_beyond_what_was_measured_widens_the_range():
    spans = {"parameters": (1e8, 1e12), "sequence_tokens": (512.0, 8192.0), "step_tokens_per_device": (1024.0, 65536.0)}
    general = replace(EFFICIENCY, doubt={"beyond": 0.1}, span=spans)
    run = RunSpec(model=LLAMA, workload=WORK, cluster=cluster("8xh100-sxm"), stack=PLAIN)

    def added(tokens=16384.0, **changes):
        made = replace(run, workload=replace(WORK, **changes))
        return beyond(made, np.array([tokens]), general)[0]

    assert added() == added(sequence_tokens=8192) == 0
    assert added(sequence_tokens=32768) == added(sequence_tokens=128) == pytest.approx(0.2)
    assert added(512.0) == pytest.approx(0.1)
    assert added(131072.0, sequence_tokens=16384) == pytest.approx(math.hypot(0.1, 0.1))
    images = replace(run, model=catalogue_model("resnet-50"))
    assert beyond(images, np.array([32.0]), general)[0] == 0, "spans are of language models"


def test_each_product_passes_once_through_what_was_measured_on_the_device_itself():
    """On tensor cores: of blocks, of the head, of attention, fused or not, and of Muon's update."""
    general = read_efficiency()
    for name, precision, measured in (
        ("gaudi2", "bf16", 418.7 / 432 / 0.85),
        ("a100-pcie-40gb", "bf16", 252.9 / 312 / 0.87),
        ("a100-pcie-40gb", "fp32", 1.0),
    ):
        for fused in (True, False):
            work = replace(WORK, precision=precision, fused_attention=fused)
            run = RunSpec(model=LLAMA, workload=work, cluster=cluster(f"1x{name}"), stack=stack("hf-trainer"))
            on_it, elsewhere = rates(run, general), rates(run, replace(general, matmul={}))
            for field in ("products", "head", "attention"):
                once = getattr(on_it, field) / getattr(elsewhere, field)
                assert once == pytest.approx(measured), (name, field, fused)
            rest = [each.name for each in fields(Rates) if each.name not in ("products", "head", "attention")]
            assert [getattr(on_it, each) for each in rest] == [getattr(elsewhere, each) for each in rest]


def test_kernels_take_as_much_longer_as_their_rates_are_lower():
    run = RunSpec(
        model=LLAMA,
        workload=replace(WORK, optimizer="muon"),
        cluster=cluster("1xa100-pcie-40gb"),
        stack=stack("hf-trainer"),
    )
    layouts, rate = Layouts.of([ParallelPlan()], ["none"], WORK), rates(run, read_efficiency())
    counted = Catalogue().work(run, layouts)
    products = replace(counted, operands_s=0.0, loss_s=0.0, update_s=0.0)
    one, half = kernels_of(products, rate), kernels_of(products, replace(rate, products=rate.products / 2))
    assert half.weight == pytest.approx(2 * one.weight)
    head = kernels_of(products, replace(rate, head=rate.head / 2))
    assert head.head == pytest.approx(2 * one.head) and head.update == pytest.approx(2 * one.update)
