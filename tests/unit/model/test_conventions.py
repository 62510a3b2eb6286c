from __future__ import annotations

import json

import pytest

from trainwright.core.errors import DataError
from trainwright.model.conventions import read_conventions


def write(directory, **files):
    for name, value in files.items():
        (directory / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")


def test_a_trained_artefact_ends_at_its_special_token(tiny, tmp_path):
    tokenizer = tiny.tokenizer()
    end = tokenizer.token_to_id(tiny.END)
    conventions = read_conventions(tmp_path, tokenizer)
    assert (conventions.end_ids, conventions.start_id, conventions.chat_template) == ({end}, end, None)


def test_generation_settings_win_over_the_configuration(tiny, tmp_path):
    write(tmp_path, config={"eos_token_id": 2, "bos_token_id": 1}, generation_config={"eos_token_id": [7, 9]})
    conventions = read_conventions(tmp_path, tiny.tokenizer())
    assert (conventions.end_ids, conventions.start_id) == ({7, 9}, 1)
    write(tmp_path, generation_config={})
    assert read_conventions(tmp_path, tiny.tokenizer()).end_ids == {2}


def test_chat_template_from_either_place_with_its_tokens(tiny, tmp_path):
    settings = {"chat_template": "{{ bos_token }}", "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    write(tmp_path, tokenizer_config=settings)
    conventions = read_conventions(tmp_path, tiny.tokenizer())
    assert conventions.chat_template == "{{ bos_token }}"
    assert conventions.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    (tmp_path / "chat_template.jinja").write_text("from the file")
    assert read_conventions(tmp_path, tiny.tokenizer()).chat_template == "from the file"


def test_several_templates_and_broken_files_are_refused(tiny, tmp_path):
    write(tmp_path, tokenizer_config={"chat_template": [{"name": "default", "template": ""}]})
    with pytest.raises(DataError, match="several chat templates are not supported"):
        read_conventions(tmp_path, tiny.tokenizer())
    write(tmp_path, tokenizer_config=[])
    with pytest.raises(DataError, match=r"tokenizer_config\.json: cannot read JSON \(seen list, expected an object"):
        read_conventions(tmp_path, tiny.tokenizer())
