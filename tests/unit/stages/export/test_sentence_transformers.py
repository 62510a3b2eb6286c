from __future__ import annotations

import json

import pytest

from trainwright.spec.sections.tasks.keys import EmbedSection
from trainwright.stages.export.sentence_transformers import write_sentence_transformers


@pytest.mark.parametrize(
    ("pooling", "key"),
    [("mean", "pooling_mode_mean_tokens"), ("cls", "pooling_mode_cls_token"), ("last", "pooling_mode_lasttoken")],
)
def test_parts_stand_in_order_and_one_way_of_pooling_is_true(tmp_path, pooling, key) -> None:
    write_sentence_transformers(
        tmp_path, EmbedSection(name="embed", pooling=pooling), width=48, text_tokens=64, pooler=pooling == "cls"
    )
    modules = json.loads((tmp_path / "modules.json").read_text())
    assert [(each["idx"], each["path"], each["type"]) for each in modules] == [
        (0, "", "sentence_transformers.models.Transformer"),
        (1, "1_Pooling", "sentence_transformers.models.Pooling"),
        (2, "2_Normalize", "sentence_transformers.models.Normalize"),
    ]
    way = json.loads((tmp_path / "1_Pooling" / "config.json").read_text())
    assert way["word_embedding_dimension"] == 48
    assert [name for name, value in way.items() if name.startswith("pooling_mode") and value] == [key]
    read = json.loads((tmp_path / "sentence_bert_config.json").read_text())
    bare = {"model_args": {"add_pooling_layer": False}} if pooling == "cls" else {}
    assert read == {"max_seq_length": 64, "do_lower_case": False, **bare}
