"""Every form in which chats are common becomes the same messages; what is out of order has its reason."""

from __future__ import annotations

import pytest

from trainwright.spec.sections.corpus.sources import ChatsSource, PreferencesSource
from trainwright.stages.data.chats.records import NoChat, chat_form, chats_of, form_of, preference_form

ASKED, TOLD = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
PATHS = ["x.jsonl"]


def chat(record, **keys):
    return chats_of(chat_form(record, ChatsSource(kind="chats", paths=PATHS, **keys)))


def pair(record, **keys):
    return chats_of(preference_form(record, PreferencesSource(kind="preferences", paths=PATHS, **keys)))


@pytest.mark.parametrize(
    ("record", "keys"),
    [
        ({"messages": [ASKED, TOLD]}, {}),
        ({"messages": None, "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}, {}),
        ({"talk": [ASKED, TOLD]}, {"messages_key": "talk"}),
        ({"prompt": "q", "completion": "a"}, {}),
        ({"prompt": [ASKED], "completion": [TOLD]}, {}),
        ({"question": "q", "reply": "a"}, {"prompt_key": "question", "answer_key": "reply"}),
    ],
)
def test_all_forms_are_the_same_chat(record, keys):
    assert chat(record, **keys) == [[ASKED, TOLD]]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({}, "no key 'messages' or 'conversations' or 'prompt'"),
        ({"prompt": "q"}, "no key 'completion'"),
        ({"messages": "q"}, "'messages' is not a list of messages"),
        ({"messages": []}, "no message"),
        ({"messages": [{"content": "q"}]}, "a message without a role"),
        ({"messages": [{"role": "user"}]}, "a message whose content is not a string"),
        ({"messages": [ASKED, {"role": "tool", "content": "x"}]}, "unknown role 'tool'"),
        ({"messages": [ASKED, ASKED, TOLD]}, "two messages of the user in a row"),
        ({"messages": [ASKED, TOLD, TOLD]}, "two messages of the assistant in a row"),
        ({"messages": [TOLD]}, "the user does not begin"),
        ({"messages": [ASKED]}, "the last message is no answer"),
        ({"messages": [ASKED, {"role": "assistant", "content": " \n"}]}, "an empty answer"),
        ({"messages": [{"role": "user", "content": ""}, TOLD]}, "an empty question"),
        ({"messages": [ASKED, TOLD, {"role": "system", "content": "s"}]}, "a system message that is not the first"),
    ],
)
def test_a_chat_out_of_order_has_its_reason(record, reason):
    with pytest.raises(NoChat) as told:
        chat(record)
    assert str(told.value) == reason


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": "q", "chosen": "good", "rejected": "bad"},
        {"prompt": [ASKED], "chosen": "good", "rejected": [{"role": "assistant", "content": "bad"}]},
        {"prompt": "q", "chosen": [ASKED, {"role": "assistant", "content": "good"}], "rejected": "bad"},
        {
            "chosen": [ASKED, {"from": "gpt", "value": "good"}],
            "rejected": [{"from": "human", "value": "q"}, {"role": "assistant", "content": "bad"}],
        },
    ],
)
def test_all_forms_are_the_same_preference(record):
    answers = [[ASKED, {"role": "assistant", "content": content}] for content in ("good", "bad")]
    assert pair(record) == answers


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"prompt": "q", "chosen": "a"}, "no key 'rejected'"),
        ({"prompt": "q", "chosen": "a", "rejected": "a"}, "the two answers are the same"),
        (
            {"chosen": [ASKED, TOLD], "rejected": [{"role": "user", "content": "r"}, TOLD]},
            "the two answers have different prompts",
        ),
        ({"chosen": "a", "rejected": "b"}, "the user does not begin"),
        ({"prompt": "q", "chosen": "a", "rejected": ""}, "an empty answer"),
    ],
)
def test_a_preference_that_is_none_has_its_reason(record, reason):
    with pytest.raises(NoChat) as told:
        pair(record)
    assert str(told.value) == reason


def test_a_form_gives_back_what_it_was_made_of():
    for chats in ([[ASKED, TOLD]], [[ASKED, TOLD], [ASKED, {"role": "assistant", "content": "ü\n"}]]):
        assert chats_of(form_of(chats)) == chats
