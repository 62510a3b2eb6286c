"""Words of a row's settings become a workload, or are refused by name."""

import pytest

from fixtures.published import record, workload
from trainwright.hardware.catalogue.stacks import find_stack, stack
from trainwright.planner.evidence.workload_columns import (
    adapter_of,
    optimizer_of,
    precision_of,
    recompute_of,
    states_of,
)

TITAN, MEGATRON = stack("torchtitan"), stack("megatron-2021")


def test_a_batch_is_printed_or_follows_from_the_layout():
    assert workload(record(global_batch=64), TITAN).batch_sequences == 64
    accumulated = record(global_batch="", micro_batch=2, notes="grad_accum=4")
    assert workload(accumulated, TITAN).batch_sequences == 2 * 8 * 4
    piped = record(global_batch="", micro_batch=1, pp=4, dp_shard_or_fsdp="zero1:2")
    assert workload(piped, TITAN).batch_sequences == 2 * 16  # enough micro batches to fill the stages


def test_what_is_computed_is_what_the_row_says():
    work = workload(
        record(activation_checkpointing="full", flash_attention="no", optimizer="AdamW8bit", dtype="fp8"), TITAN
    )
    assert (work.recompute, work.fused_attention, work.precision, work.moments) == (
        "full",
        False,
        "fp8",
        "int8",
    )
    assert workload(record(notes="attention-backend=unfused"), TITAN).fused_attention is False
    assert workload(record(flash_attention=""), MEGATRON).fused_attention is MEGATRON.fused_attention
    assert workload(record(notes="cross-entropy-loss-fusion"), TITAN).fused_loss


def test_activations_wider_than_products_are_refused():
    """Hidden states in fp32 beside products in 16 bits: no plan keeps them, and they take several times as long."""
    with pytest.raises(ValueError, match="activations are fp32, expected the format of products"):
        workload(record(notes="task=qlora;quant=nf4;activations=fp32: no autocast"), TITAN)
    assert workload(record(dtype="fp32", notes="activations=fp32"), TITAN).precision == "fp32"


@pytest.mark.parametrize(
    ("text", "name"),
    [("adam(distributed)", "adamw"), ("", "adamw"), ("muon", "muon"), ("SGD", "sgd"), ("adafactor", "adafactor")],
)
def test_optimizers(text, name):
    assert optimizer_of(record(optimizer=text)) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bf16", "bf16"),
        ("fp32/tf32", "tf32"),
        ("bnb.nf4-dq", "bf16"),
        ("", "bf16"),
        ("MXFP8", "fp8"),
        ("bfloat16", "bf16"),
    ],
)
def test_precisions(text, name):
    assert precision_of(record(dtype=text), TITAN) == name


def test_an_unknown_dtype_is_refused():
    with pytest.raises(ValueError, match="dtype is fp6, expected one of nvfp4"):
        precision_of(record(dtype="fp6"), TITAN)
    assert precision_of(record(dtype=""), MEGATRON) == "fp16"


@pytest.mark.parametrize(
    ("text", "name"), [("full", "full"), ("yes", "full"), ("none", "none"), ("no", "none"), ("op", "selective")]
)
def test_recomputation(text, name):
    assert recompute_of(text) == name


def test_states_follow_the_settings_of_a_run():
    assert states_of(record(notes="bf16-true"), TITAN) == "pure"
    assert states_of(record(notes="fsdp_mixed_precision=PURE"), TITAN) == "pure"
    assert states_of(record(), TITAN) == TITAN.states
    assert states_of(record(framework="transformers+peft"), find_stack("transformers+peft")) == "pure"
    assert states_of(record(framework="transformers+peft"), TITAN) == TITAN.states


def test_adapters_are_what_the_task_says():
    assert adapter_of(record()) is None
    adapter = adapter_of(record(notes="task=lora;lora_r=16;targets=q_proj v_proj down_proj"))
    assert (adapter.method, adapter.rank, adapter.targets, adapter.frozen) == (
        "lora",
        16,
        ("query", "value", "down"),
        "bf16",
    )
    assert adapter_of(record(notes="task=peft:oft;trainable=1000000")).parameters == 1_000_000
    assert adapter_of(record(notes="task=peft:oft")).method == "oft"
    assert adapter_of(record(notes="task=qlora;rank=64")).frozen == "nf4"
    assert adapter_of(record(notes="task=lora-gptq")).frozen == "int4"


@pytest.mark.parametrize(
    ("task", "method"),
    [("adapter", "adaptionprompt"), ("adapter_v2", "adaptionprompt"), ("dora", "lora")],
)
def test_few_weights_are_never_taken_for_all(task, method):
    assert adapter_of(record(notes=f"task={task}")).method == method


@pytest.mark.parametrize("task", ["full-ft", "sft", "finetune", "pretrain"])
def test_words_for_all_weights(task):
    assert adapter_of(record(notes=f"task={task}")) is None


def test_a_task_that_is_not_known_is_refused_by_word():
    with pytest.raises(ValueError, match="task is bitfit, expected one of adapter, .*qlora"):
        adapter_of(record(notes="task=bitfit"))


def test_frozen_weights_are_as_the_dtype_or_the_quantisation_says():
    assert adapter_of(record(notes="task=lora", dtype="bnb.nf4-dq")).frozen == "nf4"
    assert adapter_of(record(notes="task=lora;quant=int8")).frozen == "int8"
    assert adapter_of(record(notes="task=lora;quant=gptq-int4")).frozen == "int4"
    assert adapter_of(record(notes="task=lora;quant=gptq-int8")).frozen == "int8"


@pytest.mark.parametrize("words", ["pure bf16", "bf16-true", "bf16 states", "no master weights", "states=pure"])
def test_words_for_states_in_16_bits(words):
    assert states_of(record(notes=words), TITAN) == "pure" != TITAN.states


def test_states_that_are_not_known_are_refused():
    with pytest.raises(ValueError, match="states is bf8, expected one of fp32, mixed, pure"):
        states_of(record(notes="states=bf8"), TITAN)


@pytest.mark.parametrize("words", ["chunked loss", "LinearCrossEntropy", "liger", "cut_cross_entropy"])
def test_losses_in_chunks_keep_no_logits(words):
    assert workload(record(notes=words), TITAN).fused_loss
    assert not workload(record(notes="a plain loss"), TITAN).fused_loss


@pytest.mark.parametrize("words", ["activation_offloading=true", "with activation offload", "offload activations"])
def test_activation_offload_is_read_where_it_is_on(words):
    assert workload(record(notes=words), TITAN).activation_offload
    assert not workload(record(notes="activation_offloading=false"), TITAN).activation_offload


@pytest.mark.parametrize(
    ("name", "moments"), [("paged_adamw_8bit", "int8"), ("PagedAdamW8bit", "int8"), ("paged_adamw_32bit", "fp32")]
)
def test_paged_optimizers_are_read_by_their_names(name, moments):
    work = workload(record(optimizer=name), TITAN)
    assert (work.paged_moments, work.moments, work.optimizer) == (True, moments, "adamw")
    plain = workload(record(optimizer=name.lower().replace("paged", "").strip("_")), TITAN)
    assert not plain.paged_moments


@pytest.mark.parametrize("words", ["no liger", "without chunked loss", "liger=false", "cut_cross_entropy: no"])
def test_words_that_deny_a_setting_do_not_set_it(words):
    assert not workload(record(notes=words), TITAN).fused_loss


def test_states_that_are_denied_are_the_softwares():
    assert states_of(record(notes="not pure bf16"), TITAN) == TITAN.states


@pytest.mark.parametrize(
    ("quant", "frozen"), [("hqq", "int4"), ("bnb.fp4", "nf4"), ("8-bit", "int8"), ("None", "bf16")]
)
def test_quantisations(quant, frozen):
    assert adapter_of(record(notes=f"task=lora;quant={quant}")).frozen == frozen


def test_products_in_four_bits_are_no_quantised_weights():
    row = record(dtype="nvfp4", notes="task=lora")
    assert (precision_of(row, TITAN), adapter_of(row).frozen) == ("nvfp4", "bf16")
    assert adapter_of(record(dtype="nvfp4", notes="task=lora;quant=fp4")).frozen == "nf4"


def test_a_quantisation_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="quant is ternary, expected none or one with int8"):
        adapter_of(record(notes="task=lora;quant=ternary"))


def test_losses_are_in_chunks_where_the_software_has_them_so_and_the_row_does_not_deny_it():
    names = ("torchtune", "axolotl", "hf-trainer")
    own = {name: workload(record(), stack(name)).fused_loss for name in names}
    assert own == {"torchtune": True, "axolotl": False, "hf-trainer": False}
    assert not workload(record(notes="no chunked loss"), stack("torchtune")).fused_loss


@pytest.mark.parametrize("words", ["optimizer_in_bwd=true", "optimizer in backward"])
def test_updates_in_the_backward_pass_are_read(words):
    assert workload(record(notes=words), TITAN).update_in_backward
    assert not workload(record(notes="optimizer_in_bwd=false"), TITAN).update_in_backward


def test_moments_that_a_row_does_not_say_are_the_softwares_in_tuning():
    unsloth = stack("unsloth")
    assert workload(record(notes="task=lora", optimizer=""), unsloth).moments == "int8"
    assert workload(record(notes="task=lora", optimizer="adamw"), unsloth).moments is None
    assert workload(record(notes="", optimizer=""), unsloth).moments is None
    assert workload(record(notes="task=lora", optimizer=""), TITAN).moments is None
