from __future__ import annotations

import json

from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from trainwright.stages.serve.answers import Answer, Usage, sse

USAGE = Usage(prompt_tokens=3, completion_tokens=4)


def test_openais_types_take_every_form():
    chat, plain = Answer(kind="chat", model="m"), Answer(kind="completion", model="m")
    ChatCompletion.model_validate(chat.whole([("hi", "stop")], USAGE))
    Completion.model_validate(plain.whole([("hi", "length")], USAGE))
    for chunk in (chat.opening(1), chat.part(1, "hi", None), chat.part(1, "", "stop"), chat.closing(USAGE)):
        assert ChatCompletionChunk.model_validate(chunk).id == chat.whole([], USAGE)["id"]
    for chunk in (plain.part(0, "", "length"), plain.closing(USAGE)):
        Completion.model_validate(chunk)
    # OpenAI's stream has null here too, which the type of the whole answer does not know.
    assert plain.part(0, "hi", None)["choices"][0]["finish_reason"] is None
    assert plain.opening(0) is None


def test_usage_adds_up():
    assert USAGE.body() == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_identities_differ():
    assert Answer(kind="chat", model="m").id != Answer(kind="chat", model="m").id


def test_an_event_is_one_line_whatever_the_text():
    event = sse({"text": "two\nlines \u2028 你"})
    assert event.startswith("data: ")
    assert event.endswith("\n\n")
    assert "\n" not in event[:-2]
    assert json.loads(event.removeprefix("data: ")) == {"text": "two\nlines \u2028 你"}
