"""Settings in notes are understood, refused by their word, or named as not used."""

import pytest

from fixtures.published import record, workload
from trainwright.hardware.catalogue.stacks import stack
from trainwright.planner.evidence.notes import loss_of, refuse_unknown, unused
from trainwright.planner.evidence.published_run import question
from trainwright.planner.evidence.report import judge_all, report
from trainwright.planner.evidence.rows import memory_kind, take_apart

TITAN = stack("torchtitan")


@pytest.mark.parametrize(
    ("notes", "message"),
    [
        ("activation_offloading=banana", "activation_offloading is banana, expected yes or no"),
        ("optimizer_in_bwd=maybe", "optimizer_in_bwd is maybe, expected yes or no"),
        ("chunked_loss=some", "chunked_loss is some, expected yes or no"),
        ("paged_adamw=perhaps", "paged_adamw is perhaps, expected yes or no"),
        ("pure_bf16=half", "pure_bf16 is half, expected yes or no"),
        ("weights=bf16", "weights is bf16, expected states=fp32, mixed, pure of weights that are trained"),
        ("param_dtype=bf16", "param_dtype is bf16, expected states="),
        ("memory=foo", "memory is foo, expected one of reserved, allocated, active"),
        ("loss=funny", "loss is funny, expected one of chunked, fused"),
        ("fsdp_mixed_precision=odd", "fsdp_mixed_precision is odd, expected one of default, pure"),
        ("position-embedding-type=curly", "position-embedding-type is curly, expected one of rope"),
        ("grad_accum=several", "grad_accum is several, expected a number"),
    ],
)
def test_values_that_are_not_understood_refuse_the_row_by_their_word(notes, message):
    with pytest.raises(ValueError, match=message):
        workload(record(notes=f"a row;{notes}"), TITAN)


@pytest.mark.parametrize(
    "notes",
    ["activation_offloading=False;liger=on", "vp=n/a;topk=8", "vp=4 (2)", "mem=peak RESERVED over run", "no liger", ""],
)
def test_values_that_are_understood_do_not(notes):
    refuse_unknown(take_apart(notes))


@pytest.mark.parametrize(("word", "chunks"), [("chunked", True), ("Liger", True), ("cross-entropy", False), ("", None)])
def test_a_loss_is_what_its_word_says(word, chunks):
    assert loss_of({"loss": word}) is chunks
    software = stack("torchtune")  # has it in chunks
    assert workload(record(notes=f"loss={word}"), software).fused_loss is (chunks is not False)


def test_active_memory_is_that_of_tensors():
    assert memory_kind(record(notes="memory=active"), "reserved") == "allocated"
    assert memory_kind(record(notes="n_active=5e9"), "reserved") == "reserved"


def test_settings_that_nobody_reads_are_named():
    notes = "weird_switch=on;grad_accum=4;hfu=55.0;a sentence of words;vp=4 (2);liger=no;mem=allocated"
    assert unused(take_apart(notes)) == ("weird_switch", "vp")
    assert unused(take_apart("rank=x;targets=q_proj;quant=none")) == ("rank", "targets")
    assert unused(take_apart("task=lora;rank=8;targets=q_proj")) == ()
    rows = [question(record(notes=notes, tokens_per_s_per_gpu=7000, global_batch="")) for _ in range(2)]
    judged, refused = judge_all(rows)
    assert report(judged, refused).unused == {"weird_switch": 2, "vp": 2}


def test_updates_in_the_backward_pass_leave_nothing_to_accumulate():
    with pytest.raises(ValueError, match="updates in the backward pass with 4 micro batches of a step, expected one"):
        workload(record(notes="optimizer_in_bwd=True", micro_batch=1, global_batch=32), TITAN)
    assert workload(record(notes="optimizer_in_bwd=True", micro_batch=4, global_batch=32), TITAN).update_in_backward
    unsaid = record(notes="optimizer_in_bwd=True", micro_batch="", global_batch=32)
    assert question(unsaid).placed.parallel.micro_batch_sequences == 4
