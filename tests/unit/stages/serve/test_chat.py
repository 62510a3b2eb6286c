from __future__ import annotations

import pytest
import transformers

from trainwright.core.errors import DataError
from trainwright.stages.serve.chat import PLAIN_STOP, plain, templated
from trainwright.stages.serve.problems import ApiError
from trainwright.stages.serve.requests import Message

TALK = [
    Message(role="system", content="Be brief."),
    Message(role="user", content="Hi \N{WAVING HAND SIGN}"),
    Message(role="assistant", content="Hello"),
    Message(role="user", content="Bye"),
]
TEMPLATE = """{{ bos_token }}
{% for message in messages %}
    {% if message['role'] not in ['system', 'user', 'assistant'] %}
        {{ raise_exception('no such role: ' + message['role']) }}
    {% endif %}
<|{{ message['role'] }}|>{{ message['content'] | trim }}{{ eos_token }}
{% endfor %}
{% if add_generation_prompt %}<|assistant|>{% endif %}{{ {'é': 1} | tojson }}"""


def test_plain_form():
    text = plain(TALK)
    assert text == "System: Be brief.\n\nUser: Hi \N{WAVING HAND SIGN}\n\nAssistant: Hello\n\nUser: Bye\n\nAssistant:"
    assert all(stop in text for stop in PLAIN_STOP)


def test_templates_render_as_transformers_renders_them(tiny):
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=tiny.tokenizer(), chat_template=TEMPLATE, **tokens)
    turns = [message.model_dump(include={"role", "content"}) for message in TALK]
    expected = theirs.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert templated(TEMPLATE, tokens)(TALK) == expected


def test_a_template_may_refuse():
    with pytest.raises(ApiError, match="chat template refuses these messages: no such role: developer"):
        templated(TEMPLATE, {"bos_token": "", "eos_token": ""})([Message(role="developer", content="x")])


def test_a_template_reaches_nothing_of_the_server():
    with pytest.raises(ApiError, match="unsafe"):
        templated("{{ messages.__class__.__mro__ }}", {})(TALK)


def test_a_broken_template_is_found_at_the_start():
    with pytest.raises(DataError, match="chat_template: the chat template is no valid Jinja"):
        templated("{% for %}", {})
