"""Rows become the networks, workloads and layouts that they name; what is not said is the framework's default."""

import pytest

from fixtures.published import RUNS, record, workload
from trainwright.hardware.catalogue.models import model as catalogue_model
from trainwright.hardware.catalogue.stacks import find_stack, stack
from trainwright.planner.counts.parameters import total_parameters
from trainwright.planner.evidence.columns import (
    axes_of,
    model_of,
    parallel_of,
    vocabulary,
)
from trainwright.planner.evidence.rows import read_records

TITAN, MEGATRON = stack("torchtitan"), stack("megatron-2021")


def parallel(row, by=TITAN):
    return parallel_of(row, by)[0]


# ------------------------------------------------------------------------------------------------------------ networks
@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("llama3-8b", {}),
        ("llama2-7b", {"ffn_hidden": 11008, "n_kv_heads": 32, "vocab": ""}),
        ("mistral-7b", {"arch": "llama(mistral)", "vocab": 32000}),
        (
            "gpt2",
            {
                "arch": "gpt",
                "n_layers": 12,
                "hidden": 768,
                "ffn_hidden": "",
                "n_heads": 12,
                "n_kv_heads": "",
                "vocab": 50257,
                "seq_len": 1024,
                "tied_embeddings": "",
            },
        ),
        ("mixtral-8x7b", {"arch": "moe", "vocab": 32000, "notes": "experts=8;topk=2"}),
        (
            "bert-large",
            {
                "arch": "bert",
                "n_layers": 24,
                "hidden": 1024,
                "ffn_hidden": 4096,
                "n_heads": 16,
                "n_kv_heads": "",
                "vocab": 30522,
                "seq_len": 512,
                "tied_embeddings": "",
            },
        ),
    ],
)
def test_known_models_are_found_by_their_shape_alone(name, columns):
    parameters = total_parameters(model_of(record(**columns)))
    assert parameters == pytest.approx(total_parameters(catalogue_model(name)), rel=0.005)


def test_a_known_name_of_the_same_sizes_brings_what_no_column_says():
    told = {"model_name": "GPT OSS 120B", "arch": "moe", "n_layers": 36, "hidden": 2880, "ffn_hidden": 2880}
    told |= {"n_heads": 64, "n_kv_heads": 8, "vocab": 201088, "notes": "experts=128;topk=4;head_dim=64"}
    known, shorter, other = (model_of(record(**told | each)) for each in ({}, {"n_layers": 4}, {"model_name": "own"}))
    assert (known.window_tokens, known.windowed_layers, known.sinks, known.experts.bias) == (128, 18, True, True)
    for shape in (shorter, other):
        assert shape.window_tokens is None and not shape.experts.bias
    assert model_of(record(**told | {"vocab": 201216})).vocabulary == 201216


def test_printed_sizes_of_the_table_agree_with_the_shapes():
    """``n_params`` is never read: it checks that the shape was understood. One row in twenty prints a round number."""
    off = []
    for row in read_records(RUNS):
        printed = row.number("n_params")
        try:
            parameters = total_parameters(model_of(row))
        except ValueError:
            continue
        if printed and row.text("arch") != "moe":
            off.append(abs(parameters / printed - 1))
    off.sort()
    assert len(off) > 600
    assert off[len(off) // 2] < 0.002
    assert off[int(0.95 * len(off))] < 0.05


def test_vocabularies_that_are_not_printed():
    assert vocabulary(record(vocab="", arch="gpt"), tp=1) == 50304  # GPT-2's 50,257 in steps of 128
    assert vocabulary(record(vocab="", arch="gpt"), tp=8) == 51200
    assert vocabulary(record(vocab="", arch="bert"), tp=1) == 30592
    assert vocabulary(record(vocab=""), tp=1) == 32000
    assert vocabulary(record(vocab="", notes="vocab-size=131072"), tp=1) == 131072
    assert vocabulary(record(vocab="", notes="recall: vocab default 250k"), tp=1) == 250_000
    assert vocabulary(record(vocab="", notes="F=96BslH^2;V=51200,s=2048"), tp=1) == 51200


def test_mixtures_need_their_numbers():
    moe = {"arch": "moe", "ffn_hidden": 1536}
    full = "num-experts=128;moe-router-topk=8;moe-ffn-hidden-size=768;moe-layer-freq=([0]*3+[1]*29);shared=1"
    experts = model_of(record(notes=full, **moe)).experts
    assert (experts.count, experts.active, experts.ffn_width) == (128, 8, 768)
    assert (experts.dense_layers, experts.shared_ffn_width) == (3, 768)
    for notes in ("", "experts=8", "topk=2"):
        with pytest.raises(ValueError, match="whose experts or top-k the row does not say"):
            model_of(record(notes=notes, **moe))
    with pytest.raises(ValueError, match="called dense"):
        model_of(record(notes="experts=8;topk=2"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n_heads": 4}, r"heads \(4\) must be a multiple of kv_heads \(8\)"),
        ({"hidden": 4097}, "hidden is 4097, expected a multiple of n_heads, 32, or head_dim in the notes"),
        ({"n_layers": ""}, "n_layers is empty"),
        ({"hidden": "4096.5"}, "hidden is 4096.5, expected a positive whole number"),
        ({"notes": "head_dim=inf"}, "head_dim is inf"),
        ({"seq_len": "1e12"}, r"seq_len is 1e12, expected at most 1e\+08: more than any run has"),
        ({"arch": "moe", "notes": "experts=2;topk=4"}, r"active \(4\) exceeds experts.count \(2\)"),
    ],
)
def test_shapes_that_cannot_be_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        model_of(record(**columns))


# -------------------------------------------------------------------------------------------------------------- layout
@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("ddp:8", (8, 1, 0)),
        ("zero1:8", (1, 8, 1)),
        ("zero2:4", (2, 4, 2)),
        ("zero3:8", (1, 8, 3)),
        ("fsdp_full:8", (1, 8, 3)),
        ("fsdp:2", (4, 2, 3)),
        ("zero0:1", (8, 1, 0)),
        ("", (1, 8, 3)),
        ("zero1", (1, 8, 1)),
        ("hsdp:4x2", (2, 4, 3)),
        ("FSDP", (1, 8, 3)),
        ("none", (8, 1, 0)),
    ],
)
def test_the_data_parallel_column(column, expected):
    plan = parallel(record(dp_shard_or_fsdp=column))
    assert (plan.dp_replicate, plan.dp_shard, plan.zero_stage) == expected


@pytest.mark.parametrize("column", ["fsdp_full:0", "zero4:8", "8", "ddp:x", "pipedream:8"])
def test_other_forms_of_it_are_refused(column):
    with pytest.raises(ValueError, match=f"dp_shard_or_fsdp is {column}, expected a form such as ddp:8"):
        axes_of(record(dp_shard_or_fsdp=column), TITAN)


def test_what_a_framework_does_where_the_row_is_silent():
    assert parallel(record(dp_shard_or_fsdp="", tp=1), MEGATRON).zero_stage == MEGATRON.zero_stage
    assert parallel(record(), MEGATRON).sequence_parallel is MEGATRON.sequence_parallel
    assert parallel(record(notes="sequence-parallel=True"), MEGATRON).sequence_parallel


def test_devices_are_printed_or_a_node():
    assert parallel_of(record(n_gpus=64, tp=8, dp_shard_or_fsdp=""), TITAN)[1] == 64
    assert parallel_of(record(n_gpus="", tp=2, dp_shard_or_fsdp=""), TITAN)[1] == 8
    assert parallel_of(record(n_gpus="", tp=2, dp_shard_or_fsdp="zero1:2"), TITAN)[1] == 4
    with pytest.raises(ValueError, match="n_gpus is 8, no multiple of tp x pp x cp = 16"):
        parallel(record(tp=8, pp=2))


@pytest.mark.parametrize(
    ("notes", "chunks"),
    [("vp=4", 4), ("interleave=2", 2), ("num-layers-per-virtual-pipeline-stage=2", 4), ("", 1), ("vp=0.5", 1)],
)
def test_interleaving(notes, chunks):
    plan = parallel(record(pp=4, dp_shard_or_fsdp="fsdp_full:2", notes=notes))
    assert plan.virtual_stages == chunks
    assert plan.schedule == ("interleaved" if chunks > 1 else "1f1b")
    assert parallel(record(pp=1, notes=notes)).virtual_stages == 1


def test_offload_is_whole_under_fsdp_and_the_optimizers_elsewhere():
    assert parallel(record(cpu_offload="yes")).offload == "all"
    assert parallel(record(cpu_offload="yes", dp_shard_or_fsdp="zero2:8")).offload == "optimizer"
    assert parallel(record(cpu_offload="no")).offload == "none"
    assert parallel(record(cpu_offload="nvme", dp_shard_or_fsdp="zero3:8")).offload == "all-nvme"
    assert parallel(record(cpu_offload="nvme", dp_shard_or_fsdp="zero1:8")).offload == "optimizer-nvme"


def test_every_framework_of_the_table_has_its_stack():
    names = {row.text("framework") for row in read_records(RUNS)}
    assert [name for name in sorted(names) if find_stack(name) is None] == []


def test_what_notes_say_of_experts_beyond_their_number():
    notes = "experts=8;topk=2;mtp-num-layers=1;moe force-balanced"
    row = record(arch="moe", notes=notes)
    assert model_of(row).further_layers == 1
    assert workload(row, TITAN).expert_imbalance == 1.0
    assert workload(record(arch="moe", notes="experts=8;topk=2"), TITAN).expert_imbalance is None


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n_gpus": 12, "tp": 8}, "n_gpus is 12, no multiple of tp x pp x cp = 8"),
        ({"n_gpus": 320, "tp": 8, "pp": 10, "dp_shard_or_fsdp": "zero1:8"}, "divides the 4 ranks left"),
        ({"dp_shard_or_fsdp": "ddp:1"}, "dp_shard_or_fsdp is ddp:1, expected ddp:8, the ranks left of n_gpus"),
        ({"n_gpus": 64, "tp": 8, "dp_shard_or_fsdp": "ddp:4"}, "expected ddp:8"),
    ],
)
def test_layouts_that_do_not_multiply_to_the_devices_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        parallel(record(**columns))


@pytest.mark.parametrize("column", ["", "zero1", "zero1:8", "ddp"])
def test_a_layout_that_nobody_says_is_refused_where_the_software_has_several(column):
    row = record(n_gpus=64, dp_shard_or_fsdp=column)
    if column != "zero1:8":
        assert parallel(row, stack("torchtitan")).tp == 1  # all devices are data-parallel unless its user says so
        assert parallel(row, stack("litgpt")).tp == 1  # divides neither tensors nor layers
    for software in ("megatron-core", "default-parallel", "nanotron"):
        with pytest.raises(ValueError, match=f"n_gpus is 64 with {software}, expected tp, pp or .*layout is not said"):
            parallel(row, stack(software))


@pytest.mark.parametrize(
    "columns",
    [{"n_gpus": 1}, {"tp": 8}, {"pp": 1}, {"dp_shard_or_fsdp": "ddp:64"}, {"dp_shard_or_fsdp": "fsdp_full"}],
)
def test_what_a_source_prints_may_say_the_layout(columns):
    assert parallel(record(**{"n_gpus": 64, "dp_shard_or_fsdp": "", **columns}), stack("megatron-core"))


def test_ranks_with_parts_of_a_sequence_may_count_among_those_that_share_weights():
    assert parallel(record(n_gpus=64, tp=8, cp=2, dp_shard_or_fsdp="fsdp_full:8")).dp_shard == 4


@pytest.mark.parametrize(
    ("word", "compiles"), [("yes", True), ("false", False), ("0", False), ("No", False), ("", False)]
)
def test_compilation_is_what_the_word_says(word, compiles):
    assert parallel(record(compile=word)).compile is compiles


@pytest.mark.parametrize(
    ("column", "word", "expected"),
    [
        ("fsdp_full:8", "true", "all"),
        ("zero1:8", "yes", "optimizer"),
        ("zero1:8", "False", "none"),
        ("fsdp_full:8", "optimizer", "optimizer"),
        ("zero3:8", "nvme", "all-nvme"),
        ("ddp:8", "frozen", "frozen"),
    ],
)
def test_offload_is_what_the_word_says(column, word, expected):
    assert parallel(record(dp_shard_or_fsdp=column, cpu_offload=word)).offload == expected


def test_an_optimizer_of_the_processor_has_its_state_there():
    assert parallel(record(optimizer="DeepSpeedCPUAdam", dp_shard_or_fsdp="zero2:8")).offload == "optimizer"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"compile": "maybe"}, "compile is maybe, expected yes or no"),
        ({"cpu_offload": "some"}, "cpu_offload is some, expected yes or no, or one of nvme"),
        ({"notes": "sequence_parallel=half"}, "sequence_parallel is half, expected yes or no"),
    ],
)
def test_words_of_a_layout_that_are_not_understood_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        parallel(record(**columns))


def test_words_of_a_shape_are_flags():
    assert model_of(record(tied_embeddings="true")).tied and not model_of(record(tied_embeddings="false")).tied
    assert model_of(record(notes="multi-latent-attention=False")).latent is None
    assert not model_of(record(arch="gpt", notes="swiglu=False")).gated
    with pytest.raises(ValueError, match="tied_embeddings is half, expected yes or no"):
        model_of(record(tied_embeddings="half"))


@pytest.mark.parametrize(("task", "classes"), [("finetune", 2), ("full-ft", 2), ("lora", 2), ("pretrain", 0), ("", 0)])
def test_an_encoder_that_is_tuned_by_any_word_has_a_classifiers_head(task, classes):
    bert = {"arch": "bert", "n_layers": 24, "hidden": 1024, "ffn_hidden": 4096, "n_heads": 16, "n_kv_heads": ""}
    found = model_of(record(notes=f"task={task}", seq_len=512, **bert))
    assert found.classes == classes
    assert found.post_norm, "BERT's norms stand behind its sub-layers, where its dropouts are"
