"""Templates are found by name, file or directory, render in a sandbox as transformers does, and never know the day."""

from __future__ import annotations

import json

import pytest

from trainwright.core.errors import DataError
from trainwright.model.chats.template import BUILT_IN, ChatTemplate, TemplateRefuses, read_template
from trainwright.model.conventions import read_chat_template

CHAT = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


def rendered(text, messages=CHAT, to_answer=False, **special):
    return ChatTemplate(text=text, source="here", special_tokens=special).renderer()(messages, to_answer)


def test_the_two_of_ours_say_what_they_say():
    assert rendered(BUILT_IN["turns"], eos_token="<e>") == "### user\na\n### assistant\nb<e>\n"
    assert rendered(BUILT_IN["turns"], CHAT[:1], True, eos_token="<e>") == "### user\na\n### assistant\n"
    chatml = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"
    assert rendered(BUILT_IN["chatml"]) == chatml
    assert rendered(BUILT_IN["chatml"], CHAT[:1], True) == chatml[: chatml.index("b<")]


def test_a_template_is_found_by_name_file_directory_or_beside_the_tokenizer(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    settings = {"chat_template": "T{{ bos_token }}", "bos_token": {"content": "<s>"}, "eos_token": "</s>"}
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "own.jinja").write_text("F{{ eos_token }}")
    beside = read_template(None, model / "tokenizer.json", end_of_text="<|endoftext|>")
    assert beside.renderer()(CHAT, False) == "T<s>"
    other = read_template(str(tmp_path / "own.jinja"), model / "tokenizer.json", end_of_text="<|endoftext|>")
    assert other.renderer()(CHAT, False) == "F</s>"
    assert read_template(str(model), None, end_of_text="<x>").renderer()(CHAT, False) == "T<x>"
    assert read_template("turns", None, end_of_text="<x>").renderer()(CHAT, False).endswith("b<x>\n")


def test_what_is_written_is_read_again(tmp_path):
    made = ChatTemplate(text=BUILT_IN["turns"], source="turns", special_tokens={"eos_token": "<e>"})
    made.write(tmp_path)
    again = read_template(str(tmp_path), tmp_path / "tokenizer.json", end_of_text="<other>")
    assert again.renderer()(CHAT, False) == made.renderer()(CHAT, False)
    assert read_chat_template(tmp_path) == BUILT_IN["turns"]


@pytest.mark.parametrize("named", [None, "no/such.jinja"])
def test_a_missing_template_is_one_line(named, tmp_path):
    with pytest.raises(
        DataError, match=r"there is no chat template .*expected turns, chatml.*set data\.chat\.template"
    ):
        read_template(named, tmp_path / "tokenizer.json", end_of_text="<|endoftext|>")


def test_a_template_stays_in_its_sandbox_and_knows_no_day():
    with pytest.raises(TemplateRefuses):
        rendered("{{ messages.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(TemplateRefuses):
        rendered("{{ strftime_now('%Y') }}")
    with pytest.raises(DataError, match="no valid Jinja"):
        rendered("{% for")
