"""Words that people write for one thing are one thing; what is not understood is refused by name."""

import pytest

from fixtures.published import COLLECTED, RUNS
from trainwright.planner.evidence.rows import read_tables
from trainwright.planner.evidence.words import (
    READERS,
    UnknownWord,
    compiled,
    flag,
    fused,
    offloaded,
    optimizer_of,
    recompute_of,
    switch,
    trains,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("yes", True), ("True", True), ("1", True), ("no", False), ("FALSE", False), ("none", False), ("", None)],
)
def test_flags(text, expected):
    assert flag("oom", text) is expected


@pytest.mark.parametrize("text", ["maybe", "2", "yes?", "nope", "y e s"])
def test_flags_are_no_other_word(text):
    with pytest.raises(UnknownWord, match=rf"^compile is {text.replace('?', '.')}, expected yes or no"):
        compiled(text)
    with pytest.raises(UnknownWord, match=r"oom is .*, expected yes or no$"):
        flag("oom", text)


def test_words_beside_yes_and_no():
    assert [compiled(text) for text in ("thunder(sdpa,torchcompile)", "inductor", "eager")] == [True, True, False]
    assert [fused(text) for text in ("sdpa", "flash_attention_2", "flash-attn", "math")] == [
        *(True, True, True, False),
    ]
    assert [offloaded(text) for text in ("nvme", "optimizer states", "no", "")] == ["nvme", "optimizer", False, None]


def test_a_setting_named_alone_is_on():
    notes = {"MLA": "", "swiglu": "True", "fusion": "off"}
    assert [switch(notes, name) for name in ("MLA", "swiglu", "fusion", "absent")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "adamw"),
        ("adam(distributed)", "adamw"),
        ("adamw(fused)", "adamw"),
        ("adamw (foreach=True)", "adamw"),
        ("adamw_torch", "adamw"),
        ("adamw_torch_fused", "adamw"),
        ("adamw_hf", "adamw"),
        ("decoupled_adamw", "adamw"),
        ("paged_adamw_8bit", "adamw"),
        ("PagedAdamW8bit", "adamw"),
        ("DeepSpeedCPUAdam", "adamw"),
        ("distributed_fused_adam", "adamw"),
        ("adamw, optimizer in backward", "adamw"),
        ("adamw_in_backward", "adamw"),
        ("lamb", "adamw"),
        ("lora-fa", "adamw"),
        ("muon", "muon"),
        ("dist_muon + adamw", "muon"),
        ("SGD", "sgd"),
        ("sgd with momentum", "sgd"),
        ("adafactor", "adafactor"),
    ],
)
def test_optimizers(text, name):
    assert optimizer_of(text) == name


@pytest.mark.parametrize(
    "text",
    [
        *("lion", "shampoo", "radam", "adamax", "adam-mini", "adamw_torch_4bit", "galore_adamw"),
        *("paged_8bit_adamw", "sgd or adam", "none"),
    ],
)
def test_optimizers_with_other_states_are_refused(text):
    with pytest.raises(UnknownWord, match=rf"optimizer is {text}, expected one of adamw, adam, lamb"):
        optimizer_of(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "none"),
        ("none", "none"),
        ("No", "none"),
        ("0%", "none"),
        ("full", "full"),
        ("true", "full"),
        ("uniform", "full"),
        ("unsloth", "full"),
        ("32/32", "full"),
        ("selective", "selective"),
        ("selective(op)", "selective"),
        ("selective: core_attn, mlp", "selective"),
        ("op", "selective"),
        ("core_attn", "selective"),
        ("moe_act, layernorm", "selective"),
        ("1/2 layers", "selective"),
        ("50 %", "selective"),
        (".25", "selective"),
        ("save_qkv_proj", "selective"),
    ],
)
def test_recomputation(text, name):
    assert recompute_of(text) == name


@pytest.mark.parametrize(
    "text", ["nope", "offload", "selectiv", "selectively", "3/2", "150%", "2", "full but one", "mlp?"]
)
def test_recomputation_in_other_words_is_refused(text):
    with pytest.raises(UnknownWord, match="^activation_checkpointing is .*, expected one of none, no, false"):
        recompute_of(text)


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ({}, (False, None)),
        ({"task": "Pretrain"}, (False, None)),
        ({"task": "cpt"}, (False, None)),
        ({"task": "sft"}, (True, None)),
        ({"task": "Full-FT"}, (True, None)),
        ({"task": "qlora(bnb nf4)"}, (True, "lora")),
        ({"task": "adapter_v2"}, (True, "adaptionprompt")),
        ({"task": "peft:ia3"}, (True, "ia3")),
        ({"lora": "true"}, (True, "lora")),
        ({"task": "sft", "lora": "False"}, (True, None)),
    ],
)
def test_what_a_run_trains_for(notes, expected):
    assert trains(notes) == expected


def test_a_task_against_its_own_flag_is_refused():
    with pytest.raises(ValueError, match="task is full-ft, expected lora beside lora=true"):
        trains({"task": "full-ft", "lora": "true"})
    with pytest.raises(
        UnknownWord, match=r"task is bitfit, expected one of adapter, .*, or peft: and a method of PEFT"
    ):
        trains({"task": "bitfit"})


def test_every_word_of_the_published_tables_is_understood():
    """Counted by hand in the tables: what is compiled, kept out of memory, recomputed, and 24 rows of LAMB."""
    rows = read_tables([RUNS, COLLECTED])
    meant = {name: [reader(row.text(name)) for row in rows] for name, reader in READERS.items()}
    assert len(rows) == 1375
    assert (meant["compile"].count(True), meant["compile"].count(False)) == (17 + 5 + 47, 556 + 3)
    assert (meant["flash_attention"].count(True), meant["flash_attention"].count(False)) == (497 + 63 + 256, 85 + 56)
    assert [meant["activation_checkpointing"].count(each) for each in ("full", "selective")] == [272 + 135, 14 + 23]
    assert [meant["optimizer"].count(each) for each in ("muon", "adafactor", "sgd")] == [5 + 2, 2, 0]
    assert sum(row.text("optimizer") == "lamb" for row in rows) == 24
    assert (meant["oom"].count(True), meant["tied_embeddings"].count(True)) == (18 + 2, 402 + 85)
    assert set(meant["cpu_offload"]) == {False, None}
