"""Counted work: of all ranks together it is the model's, and by hand it is the papers'."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.planned_models import LLAMA
from trainwright.core.errors import RecipeError
from trainwright.hardware.catalogue.devices import device
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.stacks import read_stack
from trainwright.planner.counts.adapters import adapter_parameters
from trainwright.planner.counts.flops import count_flops
from trainwright.planner.counts.layouts import Layouts
from trainwright.planner.counts.parameters import factored_elements, total_parameters
from trainwright.planner.counts.update import update_bytes
from trainwright.planner.counts.work import (
    forward_work,
    kernels,
    on_tensor_cores,
    peak_flops_per_s,
    thin_heads,
    tile_share,
    usable_precision,
)
from trainwright.spec.workload import Adapter, ParallelPlan, Workload

H100, A100, V100 = device("h100-sxm"), device("a100-sxm-80gb"), device("v100-sxm-32gb")
WORK = Workload(sequence_tokens=512, batch_tokens=512 * 96, steps=1, precision="bf16", optimizer="adamw")
LLAMA_8B, MIXTRAL = catalogue_model("llama3-8b"), catalogue_model("mixtral-8x7b")


def layouts(*plans, work=WORK, recompute="none"):
    return Layouts.of(plans, [recompute] * len(plans), work)


def work_of(model, *plans, work=WORK, on=H100):
    return forward_work(model, work, layouts(*plans, work=work), on)


# ------------------------------------------------------------------------------------------------------------- products
@pytest.mark.parametrize(
    "name", ["gpt3-175b", "llama3-8b", "mixtral-8x7b", "deepseek-v3", "gemma2-9b", "bert-large", "falcon-40b"]
)
def test_one_device_makes_the_models_products(name):
    model = catalogue_model(name)
    flops = count_flops(model, sequences=3, sequence_tokens=512)
    counted_work = work_of(model, ParallelPlan(micro_batch_sequences=3))
    peak = H100.flops_per_s["bf16"]
    assert counted_work.products_s[0] * peak == pytest.approx(flops.linear)
    assert counted_work.head_s[0] * peak == pytest.approx(flops.head)
    assert counted_work.attention_s[0] * peak == pytest.approx(flops.attention - flops.hidden)
    assert counted_work.tokens[0] == 3 * 512


@given(
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 2, 3]),
    micro=st.sampled_from([1, 2, 4]),
    zero=st.sampled_from([0, 1, 3]),
)
def test_all_ranks_together_make_the_products_of_the_batch(tp, pp, cp, dp, micro, zero):
    """Blocks that divide: nothing is computed twice and nothing is left out."""
    plan = ParallelPlan(tp=tp, pp=pp, cp=cp, dp_shard=dp, micro_batch_sequences=micro, zero_stage=zero)
    shape = layouts(plan)
    counted_work = forward_work(LLAMA_8B, WORK, shape, H100)
    batch = count_flops(LLAMA_8B, sequences=WORK.batch_sequences, sequence_tokens=512)
    times = shape.devices[0] * shape.micro_batches[0] * H100.flops_per_s["bf16"]
    assert counted_work.products_s[0] * times == pytest.approx(batch.linear)
    assert counted_work.attention_s[0] * times == pytest.approx(batch.attention / 2)
    # The head is on one pipeline stage, and the slowest rank is there.
    assert counted_work.head_s[0] * times / pp == pytest.approx(batch.head)


@given(ep=st.sampled_from([1, 2, 4, 8]), tp=st.sampled_from([1, 2]))
def test_experts_on_other_ranks_are_as_much_work(ep, tp):
    """Fewer experts on a rank, and more tokens for each of them; of all matrices tp does not divide the router."""
    plan = ParallelPlan(dp_shard=8, ep=ep, tp=tp)
    shape = layouts(plan)
    counted_work = forward_work(MIXTRAL, replace(WORK, expert_imbalance=1.0), shape, H100)
    whole = count_flops(MIXTRAL, sequences=WORK.batch_sequences, sequence_tokens=512).linear
    router = 2 * WORK.batch_tokens * MIXTRAL.layers * MIXTRAL.width * MIXTRAL.experts.count
    times = shape.devices[0] * shape.micro_batches[0] * H100.flops_per_s["bf16"]
    assert counted_work.products_s[0] * times == pytest.approx(whole + (tp - 1) * router)


def test_others_wait_for_the_fullest_rank_of_experts():
    """Experts' products alone take longer, and only where experts are divided over ranks."""
    plans = [ParallelPlan(dp_shard=8, ep=each) for each in (1, 8)]
    even, uneven = (
        forward_work(MIXTRAL, replace(WORK, expert_imbalance=each), layouts(*plans), H100) for each in (1.0, 1.5)
    )
    flops = 2 * 512 * MIXTRAL.layers * 3 * MIXTRAL.width * MIXTRAL.experts.ffn_width * MIXTRAL.experts.active
    more = (uneven.products_s - even.products_s) * H100.flops_per_s["bf16"]
    assert more.tolist() == pytest.approx([0.0, 0.5 * flops], abs=1e3)
    assert uneven.traffic_s[1] > even.traffic_s[1] and uneven.traffic_s[0] == even.traffic_s[0]


def test_attention_that_writes_its_scores_makes_and_moves_the_whole_square():
    plain = replace(WORK, fused_attention=False)
    fused, whole = work_of(LLAMA_8B, ParallelPlan()), work_of(LLAMA_8B, ParallelPlan(), work=plain)
    assert whole.attention_s[0] == pytest.approx(2 * fused.attention_s[0])
    scores = 2 * 512 * 512 * LLAMA_8B.heads * LLAMA_8B.layers
    for eager, forward, backward in (
        # product, [scale, mask, softmax], dropout with a mask of a byte, product; and back, softmax by two inputs
        (True, 1 + 2 + 2 + 2 + 2.5 + 1, 1 + 1 + 2.5 + 3 + 2 + 2),
        (False, 1 + 2 + 2.5 + 1, 1 + 1 + 2.5 + 3 + 1.5),
    ):
        moved = forward_work(LLAMA_8B, plain, layouts(ParallelPlan(), work=plain), H100, eager=eager).scores_s[0]
        assert moved * H100.bytes_per_s == pytest.approx((forward + backward) / 3 * scores)
    assert fused.scores_s[0] == 0


def test_an_encoder_sees_both_ways():
    bert = catalogue_model("bert-large")
    counted_work = work_of(bert, ParallelPlan())
    by_hand = 4 * 512**2 * bert.width * bert.layers
    assert counted_work.attention_s[0] * H100.flops_per_s["bf16"] == pytest.approx(by_hand)
    assert counted_work.encoder_s[0] > 0 == work_of(LLAMA_8B, ParallelPlan()).encoder_s[0]
    assert work_of(catalogue_model("modernbert-large"), ParallelPlan()).encoder_s[0] == 0


def test_dropout_line_by_line_moves_the_width_and_in_one_kernel_its_masks():
    bert = catalogue_model("bert-large")
    for eager, moved in ((True, 2 * (2.5 + 2.5) / 3), (False, 2 * (0.5 + 0.5) / 3)):
        counted_work = forward_work(bert, WORK, layouts(ParallelPlan()), H100, eager=eager)
        moved_bytes = counted_work.encoder_s[0] * H100.bytes_per_s
        assert moved_bytes == pytest.approx(2 * 512 * bert.layers * bert.width * moved)


@pytest.mark.parametrize(
    ("name", "size", "longer"),
    [("a100-sxm-80gb", 64, 189 / 171), ("h100-sxm", 64, 648 / 497), ("h100-sxm", 256, 648 / 746)],
)
def test_attention_of_thin_heads_reaches_less(name, size, longer):
    """Heads of 128 over heads of 64 and 256 in the figures of FlashAttention-2 and -3, causal, 16k tokens (recall)."""
    model, spec = replace(LLAMA_8B, head_size=size), device(name)
    assert thin_heads(model, WORK, spec, peak_flops_per_s(spec, "bf16")) == pytest.approx(longer, rel=0.1)


def test_blackwell_ultra_makes_twice_as_many_exponentials():
    """A third faster, forward, with heads of 192 and 128 (NVIDIA's article); less with the five products backward."""
    model = catalogue_model("deepseek-v3")
    older, newer = (thin_heads(model, WORK, spec, 2.25e15) for spec in map(device, ("b200-sxm", "b300-sxm")))
    assert 1.05 < older / newer < 1.35


def test_heads_of_128_are_what_rates_are_for_and_a_tpu_pads_to_them():
    for name in ("a100-sxm-80gb", "b200-sxm", "tpu-v6e", "mi300x"):
        spec = device(name)
        assert thin_heads(LLAMA_8B, WORK, spec, peak_flops_per_s(spec, "bf16")) == 1
    gpt_oss, tpu = catalogue_model("gpt-oss-20b"), device("tpu-v6e")
    assert thin_heads(gpt_oss, WORK, tpu, peak_flops_per_s(tpu, "bf16")) == 2


@pytest.mark.parametrize(
    ("name", "precision", "found"),
    [
        ("v100-sxm-32gb", "fp16", True),
        ("v100-sxm-32gb", "tf32", False),
        ("a100-sxm-80gb", "tf32", True),
        ("a100-sxm-80gb", "fp32", False),
        ("gtx-1080-ti", "tf32", False),
        ("mi300x", "fp32", True),
    ],
)
def test_plain_cores_compute_what_tensor_cores_have_no_format_for(name, precision, found):
    assert on_tensor_cores(device(name), precision) is found


def test_plain_cores_are_busy_with_smaller_tiles():
    full = replace(WORK, precision="fp32")
    on_cores, on_tensors = (
        work_of(catalogue_model("bert-large"), ParallelPlan(), work=work, on=A100) for work in (full, WORK)
    )
    assert on_cores.busy[0] > 1.5 * on_tensors.busy[0]


def test_sizes_off_128_bytes_are_told_apart():
    assert work_of(LLAMA, ParallelPlan()).unaligned_s[0] == 0
    odd = replace(LLAMA, ffn_width=LLAMA.ffn_width + 1)
    flops = 3 * 2 * 512 * odd.width * odd.ffn_width * odd.layers
    assert work_of(odd, ParallelPlan()).unaligned_s[0] * H100.flops_per_s["bf16"] == pytest.approx(flops)


def test_fp8_makes_products_faster_and_attention_not():
    sixteen, eight = (work_of(LLAMA_8B, ParallelPlan(), work=replace(WORK, precision=each)) for each in ("bf16", "fp8"))
    assert eight.products_s[0] == pytest.approx(sixteen.products_s[0] / 2, rel=1e-3)
    assert eight.attention_s[0] == sixteen.attention_s[0]
    assert eight.traffic_s[0] > sixteen.traffic_s[0]


@pytest.mark.parametrize(
    ("on", "precision", "tera"),
    [
        (H100, "bf16", 989.4),
        (H100, "fp8", 1978.9),
        (A100, "fp8", 312),
        (A100, "tf32", 156),
        (A100, "fp32", 19.5),
        (V100, "bf16", 125),
        (V100, "tf32", 15.7),
        (device("b200-sxm"), "nvfp4", 9000),
        (A100, "nvfp4", 312),
        (device("gtx-1080-ti"), "fp16", 0),
    ],
)
def test_a_precision_runs_on_the_fastest_unit_that_the_datasheet_has(on, precision, tera):
    assert peak_flops_per_s(on, precision) == tera * 1e12


def test_a_device_without_a_rate_is_refused():
    with pytest.raises(RecipeError, match=r"gtx-1080-ti: no peak rate for fp16 is known .*fp16 or bf16"):
        work_of(LLAMA, ParallelPlan(), work=replace(WORK, precision="fp16"), on=device("gtx-1080-ti"))


# ---------------------------------------------------------------------------------------------------------------- tiles
def tiles_by_hand(rows, columns, units):
    """Deal tiles of 128 x 128 to processors, wave after wave; the share of their places that holds results."""
    tiles = sum(1 for _ in product(range(0, rows, 128), range(0, columns, 128)))
    waves = 0
    while tiles > 0:
        tiles -= units
        waves += 1
    return rows * columns / (waves * units * 128 * 128)


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 200))
def test_waves_of_tiles_are_dealt_out(rows, columns, units):
    assert tile_share(np.array([float(rows)]), float(columns), units)[0] == pytest.approx(
        tiles_by_hand(rows, columns, units)
    )


def test_nvidias_example_of_wave_quantisation():
    """A100, 108 multiprocessors: 108 tiles fill a wave, the 109th wants another (Matrix Multiplication Background)."""
    full, one_more = tile_share(np.array([12 * 128.0, 109 * 128.0]), np.array([9 * 128.0, 128.0]), 108)
    assert (full, one_more) == (1.0, 109 / 216)


def test_small_products_leave_most_of_a_device_idle():
    wide, narrow = work_of(LLAMA_8B, ParallelPlan(micro_batch_sequences=16)), work_of(LLAMA, ParallelPlan())
    assert 0 < narrow.busy[0] < 0.3
    assert 0.9 < wide.busy[0] <= 1


# ------------------------------------------------------------------------------------------------------ what is updated
@pytest.mark.parametrize(("states", "each"), [("fp32", (4 + 3) * 4), ("mixed", (4 + 3) * 4 + 2), ("pure", (4 + 3) * 2)])
def test_an_update_reads_four_numbers_and_writes_three(states, each):
    """Gradient, weight and two moments; weight and moments; with a master copy the reduced weight too."""
    moved_bytes = update_bytes(LLAMA_8B, replace(WORK, states=states), layouts(ParallelPlan()))
    assert moved_bytes[0] == each * total_parameters(LLAMA_8B)


@pytest.mark.parametrize(
    ("changed", "each"),
    [
        ({"optimizer": "sgd"}, 4 + 4 + 4 + 2 * 4),  # one moment
        ({"optimizer": "plain-sgd"}, 4 + 4 + 4),  # none
        ({"moments": "bf16"}, 4 + 4 + 4 + 2 * 2 * 2),
        ({"moments": "int8"}, 4 + 4 + 4 + 2 * 2 * (1 + 4 / 256)),  # a scale for 256 elements
        ({"moments": "bf16", "states": "mixed"}, 4 + 4 + 4 + 2 * 2 * 2 + 2),
        ({"optimizer": "sgd", "states": "pure"}, 5 * 2),
    ],
)
def test_an_update_moves_the_moments_that_its_optimizer_keeps(changed, each):
    moved_bytes = update_bytes(LLAMA_8B, replace(WORK, **changed), layouts(ParallelPlan()))
    assert moved_bytes[0] == pytest.approx(each * total_parameters(LLAMA_8B))


def test_adafactor_reads_the_gradient_three_times_and_moves_rows_and_columns():
    moved_bytes = update_bytes(LLAMA_8B, replace(WORK, optimizer="adafactor"), layouts(ParallelPlan()))
    kept = factored_elements(LLAMA_8B)
    assert kept < total_parameters(LLAMA_8B) / 1000
    assert moved_bytes[0] == pytest.approx((3 * 4 + 4 + 4) * total_parameters(LLAMA_8B) + 2 * 4 * kept)


def newton_schulz_operations(rows, columns, steps=5):
    """Operations of the published loop, counted product by product (Jordan et al., 2024)."""
    x = np.empty((min(rows, columns), max(rows, columns)))
    count = 0

    def product(one, other):
        nonlocal count
        count += 2 * one.shape[0] * one.shape[1] * other.shape[1]
        return np.empty((one.shape[0], other.shape[1]))

    for _ in range(steps):
        a = product(x, x.T)
        product(a, a)
        x = product(a, x)
    return count


def test_muon_makes_each_matrix_orthogonal():
    muon = replace(WORK, optimizer="muon")
    shapes = [(1024, 1024)] * 2 + [(256, 1024)] * 2 + [(2816, 1024)] * 3
    small = replace(LLAMA_8B, layers=3, width=1024, heads=16, kv_heads=4, head_size=64, ffn_width=2816)
    every = small.layers * sum(newton_schulz_operations(*shape) for shape in shapes)
    counted_work = work_of(small, ParallelPlan(), work=muon)
    assert counted_work.orthogonal_s[0] * H100.flops_per_s["bf16"] == pytest.approx(every)
    assert work_of(small, ParallelPlan()).orthogonal_s[0] == 0
    # One moment for matrices and the orthogonal update in 16 bits, AdamW's two for tables and norms.
    matrices = small.layers * sum(rows * columns for rows, columns in shapes)
    moved = (20 + 4) * matrices + 28 * (total_parameters(small) - matrices)
    assert update_bytes(small, muon, layouts(ParallelPlan()))[0] == pytest.approx(moved)


def test_ranks_are_dealt_whole_matrices_to_make_orthogonal():
    muon = replace(WORK, optimizer="muon")
    plans = [ParallelPlan(dp_shard=each, zero_stage=1) for each in (1, 8, 512)]
    plans += [ParallelPlan(dp_replicate=8), ParallelPlan(pp=4), ParallelPlan(tp=2)]
    alone, shared, many, replicated, piped, split = work_of(LLAMA_8B, *plans, work=muon).orthogonal_s
    assert (shared, replicated, piped, split) == pytest.approx((alone / 8, alone, alone / 4, alone / 2))
    largest = newton_schulz_operations(LLAMA_8B.width, LLAMA_8B.ffn_width)
    assert many * H100.flops_per_s["bf16"] == pytest.approx(largest)


def test_experts_are_made_orthogonal_by_the_ranks_that_hold_them():
    muon = replace(WORK, optimizer="muon")
    plans = [ParallelPlan(dp_shard=8, ep=each) for each in (1, 2, 8)]
    counted_work = work_of(MIXTRAL, *plans, work=muon).orthogonal_s
    assert counted_work.tolist() == pytest.approx([counted_work[0]] * 3)


def test_ranks_that_share_the_state_share_its_update():
    plans = [
        ParallelPlan(dp_shard=8, zero_stage=0),
        ParallelPlan(dp_shard=8, zero_stage=1),
        ParallelPlan(dp_shard=8),
        ParallelPlan(dp_shard=4, cp=2),
        ParallelPlan(dp_replicate=8),
        ParallelPlan(dp_shard=8, tp=2, pp=2),
    ]
    moved_bytes = update_bytes(LLAMA_8B, WORK, layouts(*plans)) / (28 * total_parameters(LLAMA_8B))
    assert moved_bytes.tolist() == pytest.approx([1, 1 / 8, 1 / 8, 1 / 8, 1, 1 / 32])


def test_divided_experts_have_fewer_ranks_to_share_with():
    plans = [ParallelPlan(dp_shard=8, ep=each) for each in (1, 2, 8)]
    assert update_bytes(MIXTRAL, WORK, layouts(*plans)).tolist() == pytest.approx(
        [28 * total_parameters(MIXTRAL) / 8] * 3
    )


def test_adapters_alone_are_updated_and_frozen_weights_need_one_product():
    adapter = Adapter(rank=16)
    tuned = replace(WORK, adapter=adapter)
    assert update_bytes(LLAMA_8B, tuned, layouts(ParallelPlan()))[0] == 28 * adapter_parameters(LLAMA_8B, adapter)
    assert work_of(LLAMA_8B, ParallelPlan(), work=tuned).backward_products == 1
    assert work_of(LLAMA_8B, ParallelPlan()).backward_products == 2
    assert kernels(LLAMA_8B, tuned) == kernels(LLAMA_8B, WORK) + 4 * 2


def test_weights_in_fp32_are_cast_where_nothing_casts_them_on_the_way():
    every = total_parameters(LLAMA_8B) / H100.bytes_per_s
    plans = ParallelPlan(dp_replicate=4), ParallelPlan(dp_shard=4), ParallelPlan(cp=4), ParallelPlan(tp=4)
    assert work_of(LLAMA_8B, *plans).casts_s.tolist() == pytest.approx([every, 0, 0, every / 4])
    for kept in ({"states": "mixed"}, {"states": "pure"}, {"precision": "fp32"}, {"precision": "tf32"}):
        assert work_of(LLAMA_8B, ParallelPlan(), work=replace(WORK, **kept)).casts_s[0] == 0, kept


# ----------------------------------------------------------------------------------------------------- between products
def test_attention_of_long_sequences_grows_with_their_square():
    longer = replace(WORK, sequence_tokens=8192, batch_tokens=8192 * 96)
    short, long = work_of(LLAMA_8B, ParallelPlan()), work_of(LLAMA_8B, ParallelPlan(), work=longer)
    assert long.attention_s[0] == pytest.approx(256 * short.attention_s[0])
    assert long.products_s[0] == pytest.approx(16 * short.products_s[0])
    assert long.traffic_s[0] == pytest.approx(16 * short.traffic_s[0])


def test_a_precision_that_the_device_emulates_is_not_taken_by_itself():
    emulates = replace(H100, flops_per_s={"fp32": 250e9, "bf16": 54e9})
    assert usable_precision(emulates, None, read_stack("default")) == "fp32"
    assert usable_precision(emulates, "bf16", read_stack("default")) == "bf16"
    assert usable_precision(H100, None, read_stack("default")) == "bf16"
