"""Words of a row's settings become a workload, or are refused by name."""

from dataclasses import replace

import pytest

from fixtures.published import record, workload
from trainwright.hardware.catalogue.stacks import find_stack, stack
from trainwright.planner.evidence.workload_columns import (
    adapter_of,
    precision_of,
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
    for software in (TITAN, MEGATRON):
        for fuses in (True, False):  # whatever its file says today
            flipped = replace(software, fused_attention=fuses)
            assert workload(record(flash_attention=""), flipped).fused_attention is fuses
            assert workload(record(flash_attention="yes"), flipped).fused_attention
    assert workload(record(notes="cross-entropy-loss-fusion"), TITAN).fused_loss


def test_activations_wider_than_products_are_refused():
    """Hidden states in fp32 beside products in 16 bits: no plan keeps them, and they take several times as long."""
    with pytest.raises(ValueError, match="activations are fp32, expected the format of products"):
        workload(record(notes="task=qlora;quant=nf4;activations=fp32: no autocast"), TITAN)
    assert workload(record(dtype="fp32", notes="activations=fp32"), TITAN).precision == "fp32"


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


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"flash_attention": "maybe"}, "flash_attention is maybe, expected yes or no"),
        ({"notes": "attention-backend=fast"}, "attention-backend is fast, expected yes or no"),
        ({"notes": "transformer-impl=own"}, "transformer-impl is own, expected local or transformer_engine"),
        ({"optimizer": "lion"}, "optimizer is lion, expected one of adamw"),
        ({"activation_checkpointing": "nope"}, "activation_checkpointing is nope, expected one of none"),
        ({"notes": "cross-entropy-loss-fusion=maybe"}, "cross-entropy-loss-fusion is maybe, expected yes or no"),
        ({"notes": "task=full-ft;quant=int8"}, "quant is int8, expected none where all weights are trained"),
        ({"dtype": "bnb.nf4"}, "dtype is bnb.nf4, expected the format of products where all weights are trained"),
    ],
)
def test_words_that_are_not_understood_refuse_the_row(columns, message):
    with pytest.raises(ValueError, match=message):
        workload(record(**columns), TITAN)


def test_words_are_read_as_they_are_meant():
    work = workload(record(flash_attention="false", optimizer="lamb", activation_checkpointing="1/2"), TITAN)
    assert (work.fused_attention, work.optimizer, work.recompute) == (False, "adamw", "selective")
    assert workload(record(flash_attention="sdpa", notes="attention-backend=auto"), TITAN).fused_attention
    assert not workload(record(notes="cross-entropy-loss-fusion=False"), TITAN).fused_loss
    assert workload(record(notes="task=pretrain;quant=bf16"), TITAN).adapter is None
    assert workload(record(dtype="fp8", notes="quant=fp8"), TITAN).precision == "fp8"


def test_four_bits_beside_a_quantised_method_are_its_weights():
    """QLoRA's own second format (Dettmers et al., 2023, arXiv 2305.14314, section 4): products stay in 16 bits."""
    for notes in ("task=qlora", "task=lora;quant=fp4", "task=lora;quant=bnb.fp4"):
        row = record(dtype="fp4", notes=notes)
        assert (precision_of(row, TITAN), adapter_of(row).frozen) == ("bf16", "nf4")
    with pytest.raises(ValueError, match="dtype is fp4, expected nvfp4 of products, or quant=fp4"):
        precision_of(record(dtype="fp4", notes="task=lora"), TITAN)
    assert precision_of(record(dtype="fp4"), TITAN) == "nvfp4"


@pytest.mark.parametrize("rank", ["1.7", "0", "high", "-8"])
def test_a_rank_is_a_positive_whole_number(rank):
    with pytest.raises(ValueError, match=f"rank is {rank}, expected"):
        adapter_of(record(notes=f"task=lora;rank={rank}"))
    with pytest.raises(ValueError, match=f"trainable is {rank}, expected"):
        adapter_of(record(notes=f"task=lora;trainable={rank}"))


def test_a_rank_that_is_not_said_is_pefts():
    assert [adapter_of(record(notes=f"task=lora;{each}")).rank for each in ("", "rank=", "lora_r=16.0")] == [8, 8, 16]


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ("", ("query", "value")),
        ("all-linear", ("query", "key", "value", "output", "gate", "up", "down")),
        ("['q_proj', 'v_proj']", ("query", "value")),
        ("self_attn.q_proj,mlp.down_proj", ("query", "down")),
        ("linear_qkv linear_proj", ("query", "key", "value", "output")),
        ("linear_fc1 linear_fc2", ("gate", "up", "down")),
        ("Wqkv", ("query", "key", "value")),
    ],
)
def test_targets_are_the_matrices_that_modules_have(targets, expected):
    assert adapter_of(record(notes=f"task=lora;targets={targets}")).targets == expected


def test_targets_of_a_plain_network_have_no_gate():
    plain = {"arch": "gpt", "n_kv_heads": 32, "ffn_hidden": 16384}
    for targets in ("all-linear", "attn mlp", "c_attn out_proj fc1 fc2"):
        own = adapter_of(record(notes=f"task=lora;targets={targets}", **plain)).targets
        assert own == ("query", "key", "value", "output", "up", "down")


@pytest.mark.parametrize("target", ["lm_head", "c_proj", "everything"])
def test_targets_that_are_not_known_are_refused(target):
    with pytest.raises(ValueError, match=f"targets has {target}, expected all-linear or some of query"):
        adapter_of(record(notes=f"task=lora;targets=q_proj {target}"))


def test_adapters_may_be_a_flag():
    assert [adapter_of(record(notes=f"lora={word}")) is not None for word in ("true", "True", "", "False")] == [
        *(True, True, True, False),
    ]
    with pytest.raises(ValueError, match="lora is 8, expected yes or no"):
        adapter_of(record(notes="lora=8"))


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
    ("name", "moments"), [("adamw 8 bit", "int8"), ("adam8bit", "int8"), ("AdamW 8-bit", "int8"), ("adamw 32bit", None)]
)
def test_moments_in_eight_bits_are_read_however_they_are_written(name, moments):
    assert workload(record(optimizer=name), TITAN).moments == moments


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
