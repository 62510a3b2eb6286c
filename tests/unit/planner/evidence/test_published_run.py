"""A row as a question: machines from its notes, and never anything but a question or a reason."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.finished import finished
from fixtures.published import PLAIN, RUNS, record
from trainwright.core.records import to_json
from trainwright.planner.evidence.published_run import cluster_of, question, questions, share_of_peak
from trainwright.planner.evidence.report import judge_all
from trainwright.planner.evidence.rows import read_records, read_runs


def test_a_published_row_is_understood_whole():
    """llm-foundry's first: MPT-70B on 512 H100, FSDP, all recomputed (its README, section "H100 80GB BF16")."""
    asked = question(read_records(RUNS)[0])
    ask = asked.placed
    assert (asked.id, asked.line, asked.device, asked.model_class) == ("foundry-0001", 2, "h100-sxm", "decoder")
    assert (ask.run.model.layers, ask.run.model.width, ask.run.model.tied, ask.run.model.bias) == (
        80,
        8192,
        True,
        False,
    )
    assert (ask.parallel.dp_shard, ask.parallel.zero_stage, ask.parallel.micro_batch_sequences) == (512, 3, 8)
    assert (ask.run.workload.batch_sequences, ask.run.workload.sequence_tokens, ask.run.workload.recompute) == (
        4096,
        2048,
        "full",
    )
    assert (ask.run.cluster.devices, ask.run.cluster.node.devices, ask.run.stack.name) == (512, 8, "fsdp1-eager")
    assert asked.measured.tokens_per_s == 1007


def test_printed_tflops_become_tokens_as_their_authors_count_them():
    """Narayanan et al. (2021, equation 3): 96 B s l h^2 (1 + s / 6h + V / 16lh) operations a step, recomputation
    included."""
    records = [each for each in read_records(RUNS) if each.text("id").startswith("narayanan21-")]
    assert len(records) == 6
    for each in records:
        row = question(each)
        model, tokens = row.placed.run.model, row.placed.run.workload.sequence_tokens
        layers, width = model.layers, model.width
        flops = 96 * layers * width**2 * (1 + tokens / (6 * width) + model.vocabulary / (16 * layers * width))
        printed = each.number("tflops_per_gpu")
        assert row.measured.tokens_per_s * flops / 1e12 == pytest.approx(printed, rel=0.002)
        assert not row.measured.derived


def test_an_update_of_all_parameters_at_once_copies_them_where_the_row_names_it():
    """ms-swift's own default is the fused AdamW, which copies nothing; its table of 2024 was made with the other."""
    fused, plain = (
        question(record(framework="ms-swift", optimizer=name)).placed.run.stack.memory.update_copies
        for name in ("adamw_torch_fused", "adamw_torch")
    )
    assert (fused, plain) == (0.0, 1.0)
    flat = question(record(framework="Megatron-Core", optimizer="adamw_torch")).placed.run.stack.memory
    assert flat.update_copies == 0.0, "its optimizer is its own"


def test_a_micro_batch_that_is_not_said_is_the_largest_that_fits():
    """GPT-2 124M on 80 GiB takes the rank's whole 64 sequences, and 7 B parameters fewer; said ones stay."""
    small = {"n_layers": 12, "hidden": 768, "ffn_hidden": 3072, "n_heads": 12, "n_kv_heads": 12, "vocab": 50304}
    stated = {"gpu": "A100-80GB", "n_gpus": 8, "dp_shard_or_fsdp": "zero1:8", "global_batch": 512, "seq_len": 1024}
    assert question(record(**small, **stated, micro_batch="")).placed.parallel.micro_batch_sequences == 64
    assert question(record(**small, **stated, micro_batch=2)).placed.parallel.micro_batch_sequences == 2
    large = question(record(**stated, micro_batch="", activation_checkpointing="")).placed
    assert large.parallel.micro_batch_sequences < 64


@pytest.mark.parametrize(
    ("note", "port", "rails", "per_node"),
    [
        ("", 50e9, 8, 8),
        ("1600 Gbps RoCE inter-node", 25e9, 8, 8),  # the sum of a node's ports
        ("NVLink + 400Gb/s RDMA per GPU", 50e9, 8, 8),
        ("Selene: NVLink3 + 8x200Gb HDR IB per node", 25e9, 8, 8),
        ("NVLink intra-node, 4x OmniPath 100 inter-node (recall)", 12.5e9 / 2, 4, 8),  # four ports for eight devices
        ("4-GPU nodes NVLink", 50e9, 8, 4),
    ],
)
def test_networks_are_what_the_notes_say(note, port, rails, per_node):
    machines = cluster_of(record(interconnect_note=note, n_gpus=32), 32)
    assert machines.node.devices == per_node and machines.devices == 32
    if per_node == 8:
        assert (machines.node.rails, machines.scale_out.bytes_per_s) == (rails, port)


def test_one_node_has_no_network_and_part_of_one_is_one_node():
    assert cluster_of(record(interconnect_note="8x200Gb HDR"), 4).nodes == 1
    assert cluster_of(record(), 12).devices == 16  # whole nodes


def test_classes_of_models():
    assert question(record(arch="moe", notes="experts=8;topk=2")).model_class == "moe"
    assert question(record(arch="bert", vocab=30522, seq_len=512)).model_class == "encoder"
    assert question(record()).model_class == "decoder"


def test_an_unknown_framework_is_planned_by_the_default_stack():
    assert question(record(framework="of tomorrow")).placed.run.stack.name == "default"
    divided = question(record(framework="of tomorrow", tp=4, n_gpus=8, dp_shard_or_fsdp="ddp:2"))
    assert divided.placed.run.stack.name == "default-parallel"
    assert divided.placed.run.workload.states == "mixed"


def test_broken_rows_are_counted_with_their_reason():
    broken = [
        record(line=3, gpu="H10000"),
        record(line=4, n_layers="many"),
        record(line=5, dtype="fp6"),
        record(line=6, n_heads=4),
        record(line=7, dp_shard_or_fsdp="all"),
        record(line=8, seq_len=""),
    ]
    rows, refused = questions([record(), *broken])
    assert [row.id for row in rows] == ["own-1"]
    assert [each.line for each in refused] == [3, 4, 5, 6, 7, 8]
    reasons = [each.reason for each in refused]
    for reason, words in zip(
        reasons,
        (
            "unknown device",
            "n_layers is many",
            "dtype is fp6",
            "heads (4)",
            "dp_shard_or_fsdp is all",
            "seq_len is empty",
        ),
        strict=True,
    ):
        assert words in reason and "\n" not in reason


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"global_batch": 12, "micro_batch": 1}, "global_batch is 12, expected a multiple of 8: micro_batch 1 on each"),
        (
            {"global_batch": 24, "micro_batch": 2},
            "global_batch is 24, expected a multiple of 16: micro_batch 2 on each",
        ),
        (
            {"peak_mem_gib_per_gpu": "1e9"},
            r"peak_mem_gib_per_gpu is 1e9, expected about the 74\.\d+ GiB of h100-sxm at most",
        ),
        ({"peak_mem_gib_per_gpu": 160}, "peak_mem_gib_per_gpu is 160, expected about"),
        ({"tokens_per_s_per_gpu": "1e300"}, "of a device are .* times its peak, expected what one device computes"),
        ({"tflops_per_gpu": "1e308"}, "of a device are .* times its peak"),
        ({"step_time_s": "1e-320"}, "of a device are .* times its peak"),
        ({"tokens_per_s_per_gpu": "1e-9"}, "1e-09 tokens/s of a device, expected from 0.001 to 1e[+]09"),
        ({"step_time_s": "1e30"}, "tokens/s of a device, expected from 0.001"),
        ({"peak_mem_gib_per_gpu": "1e-300"}, "peak_mem_gib_per_gpu is 1e-300, expected a MiB at least"),
        ({"arch": "cnn"}, "arch is cnn, expected one with llama"),
        ({"notes": "arch=cnn"}, "arch is cnn in notes and llama in its column, expected it in its column alone"),
        ({"notes": "tp=2"}, "tp is 2 in notes, expected it in its column alone"),
    ],
)
def test_what_no_run_can_be_is_refused_by_name(cells, message):
    with pytest.raises(ValueError, match=message):
        question(record(**cells))


@pytest.mark.parametrize(
    "cells",
    [
        {"peak_mem_gib_per_gpu": 90},  # another size of the device than the one that its name means
        {"peak_mem_gib_per_gpu": 120, "notes": "analytic"},
        {"peak_mem_gib_per_gpu": 120, "oom": "yes"},
        {"notes": "arch=LLAMA;vocab=128256"},
        {"tokens_per_s_per_gpu": 8 * 7000},  # a node's: judged as it is printed
    ],
)
def test_what_sources_print_is_kept(cells):
    assert question(record(**cells)).id == "own-1"


def test_a_share_of_the_peak_is_of_what_a_mask_leaves():
    """Llama 3 8B: 6 (N - V h) a token, and the causal half of 12 L h s (Chowdhery et al., 2022, appendix B)."""
    row = question(record(tokens_per_s_per_gpu=7000))
    products = 6 * (8_030_261_248 - 128256 * 4096)
    attention = 12 * 32 * 4096 * 8192 / 2
    assert share_of_peak(row) == pytest.approx(7000 * (products + attention) / 989e12, rel=1e-2)
    assert share_of_peak(question(record())) is None


WORDS = st.sampled_from(
    [
        "",
        "0",
        "-1",
        "1",
        "3",
        "8",
        "1.5",
        "nan",
        "inf",
        "1e400",
        "1e15",
        "999999999999",
        "abc",
        "moe",
        "bert",
        "gpt",
        "fsdp:0",
        "zero1:999",
        "yes",
        "no",
        "0-GPU nodes",
        "0 Gbps",
        "0Gb/s per GPU",
        "0x0Gb",
        "experts=0;topk=0",
        "experts=nan;topk=inf",
        "experts=8;topk=2;dense_layers=99",
        "head_dim=inf",
        "vocab-size=inf",
        "grad_accum=nan",
        "dense_ffn=-1",
        "vp=inf",
        "vp=0.5",
        "num-layers-per-virtual-pipeline-stage=0.001",
        "task=peft:lora;rank=inf",
        "task=lora;trainable=nan",
        "local batch 0",
        "vocab 0",
        "MLA",
        "nvidia-smi",
        "last rank",
    ]
)
COLUMNS = st.sampled_from([*PLAIN, "notes", "interconnect_note", "tp", "pp", "cp", "ep", "step_time_s", "cpu_offload"])


def test_a_row_with_more_cells_than_columns_is_refused():
    rows, (refused,) = questions([record(), replace(record(line=3), surplus="bf16")])
    assert len(rows) == 1 and "more cells than columns: bf16" in refused.reason


@given(st.dictionaries(COLUMNS, WORDS | st.text(max_size=8), min_size=1, max_size=4))
def test_whatever_a_row_says_it_is_predicted_or_refused(cells):
    rows, refused = questions([record(**cells)])
    assert len(rows) + len(refused) == 1
    judged, more = judge_all(rows)
    assert len(judged) + len(more) == len(rows)
    for each in judged:
        assert 0 < each.tokens_per_s.low <= each.tokens_per_s.mid <= each.tokens_per_s.high
        assert 0 < each.memory_bytes.low <= each.memory_bytes.mid <= each.memory_bytes.high
        assert each.verdict in ("fits", "uncertain", "does not fit")


def test_a_finished_run_of_ours_is_the_row_that_it_says(tmp_path):
    line = json.loads(finished(tmp_path, changes={"device": "NVIDIA H100 80GB HBM3", "devices": 2}))
    line["parallel"]["dp_shard"] = 2
    line["model"]["head_size"] = 48
    path = tmp_path / "ledger.jsonl"
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    (row,), refused = questions(read_runs(path))
    run, measured = row.placed.run, row.measured
    assert refused == []
    assert (run.model.head_size, run.model.width) == (48, line["model"]["width"]), "no column of tables has head sizes"
    assert (run.cluster.device.name, run.cluster.devices, run.stack.name) == ("h100-sxm", 2, "trainwright")
    assert to_json(row.placed.parallel) == line["parallel"]
    steps = [pair[1] for name, pair in line["rows"].items() if name.startswith("step/") and name != "step/other"]
    tokens_per_s = line["workload"]["batch_tokens"] / sum(steps) / 2
    assert measured.tokens_per_s == pytest.approx(tokens_per_s)
    assert measured.memory_bytes == line["rows"]["run/peak memory"][1]


def test_a_finished_run_on_a_device_that_nobody_knows_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.write_text(finished(tmp_path, changes={"device": "abacus"}) + "\n", encoding="utf-8")
    rows, (refused,) = questions(read_runs(path))
    assert rows == []
    assert "abacus" in refused.reason and refused.source == "ledger"


def test_time_is_asked_of_the_mean_length_and_memory_of_the_longest():
    said = record(seq_len=768, micro_batch=4, global_batch=4, n_gpus=1, dp_shard_or_fsdp="", notes="mean_len=340")
    row = question(said)
    assert row.placed.run.workload.sequence_tokens == 768
    assert (row.timed.run.workload.sequence_tokens, row.timed.run.workload.batch_tokens) == (340, 4 * 340)
    padded = question(record(seq_len=768, micro_batch=4, global_batch=4, n_gpus=1, dp_shard_or_fsdp="", notes=""))
    assert padded.timed is padded.placed
    mixed, whole = (judge_all([each])[0][0] for each in (row, padded))
    assert mixed.tokens_per_s.mid < whole.tokens_per_s.mid and mixed.memory_bytes == whole.memory_bytes


@pytest.mark.parametrize("length", ["0", "769", "many", "-3"])
def test_a_mean_length_that_cannot_be_is_refused(length):
    with pytest.raises(ValueError, match="mean_len is .*from 1 to seq_len"):
        question(record(seq_len=768, notes=f"mean_len={length}"))


def test_a_row_may_name_the_instance_that_it_was_measured_on():
    row = question(record(gpu="p4d.24xlarge", n_gpus=16, global_batch=16, dp_shard_or_fsdp="fsdp_full:16"))
    assert (row.device, row.placed.run.cluster.nodes, row.placed.run.cluster.node.devices) == ("a100-sxm-40gb", 2, 8)


def test_padded_examples_are_padded_and_not_cut_to_their_mean():
    said = {"seq_len": 768, "micro_batch": 4, "global_batch": 4, "n_gpus": 1, "dp_shard_or_fsdp": ""}
    row = question(record(**said, notes="mean_len=340; packing=off"))
    assert row.timed is row.placed and row.mean_tokens == 340
    assert (row.placed.run.workload.example_tokens, row.placed.run.workload.sequence_tokens) == (340, 768)
    packed = question(record(**said, notes="mean_len=340; packing=true"))
    assert packed.placed.run.workload.example_tokens is None
    # Four examples are padded to more than their mean: fewer of their tokens pass in a second.
    padded, mean = (judge_all([each])[0][0] for each in (row, packed))
    assert padded.tokens_per_s.mid < mean.tokens_per_s.mid
    # What has to fit is the longest either way; the allocator keeps blocks of other lengths beside it.
    tuned = [question(record(**said, notes=f"task=lora; mean_len=340; packing={word}")) for word in ("off", "true")]
    padded, mean = judge_all(tuned)[0]
    assert padded.memory_bytes.mid > mean.memory_bytes.mid
    with pytest.raises(ValueError, match="packing is best_fit"):
        question(record(**said, notes="packing=best_fit"))


def test_learnt_prompts_are_computed_and_no_source_counts_them():
    row = question(next(each for each in read_records(RUNS) if each.text("id") == "peft-0046"))
    assert (row.mean_tokens, row.prompt_tokens) == (340, 614400 // 3072)
    assert row.timed.run.workload.sequence_tokens == 340 + 200
    assert row.measured.tokens_per_s == pytest.approx(4454.7 * 540 / 340, rel=1e-3)


@pytest.mark.parametrize(("name", "moved"), [("adamw_hf", 80), ("adamw_torch", 80), ("adamw", 28)])
def test_an_update_operation_by_operation_moves_more(name, moved):
    row = question(record(framework="axolotl", optimizer=name))
    assert row.placed.run.stack.update_bytes == moved
