"""Tokens are transformers' own, and those that count are the answers, whatever the template marks."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from trainwright.model.chats.answers import ChatEncoder, Unfit, template_problem
from trainwright.model.chats.template import BUILT_IN, ChatTemplate
from trainwright.testing.artifacts import END_OF_TEXT, train_tokenizer

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<bos>")
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is  2 + 2?\n"},
    {"role": "assistant", "content": " 4\n\n"},
    {"role": "user", "content": "naïve 你好?"},
    {"role": "assistant", "content": "I can't say: 12345."},
]
HEADERS = (
    "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n' "
    "+ message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n' }}{% endif %}"
)
"""In the manner of Llama 3."""
MARKED = (
    "{% for message in messages %}{% if message.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}"
    "{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Marks its answers, so that transformers can tell them."""
TEMPLATES = {"turns": BUILT_IN["turns"], "chatml": BUILT_IN["chatml"], "headers": HEADERS, "marked": MARKED}


@pytest.fixture(scope="module")
def tokenizer():
    made = train_tokenizer(["What is it? I can't say 4 + 5: naïve 你好\n\n assistant user system"] * 3, vocabulary=330)
    made.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    return made


def template(name):
    return ChatTemplate(
        text=TEMPLATES[name], source=name, special_tokens={"bos_token": "<bos>", "eos_token": END_OF_TEXT}
    )


def theirs(tokenizer, name):
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token=END_OF_TEXT)
    made.chat_template = TEMPLATES[name]
    return made


@pytest.mark.parametrize("name", TEMPLATES)
def test_ids_are_those_of_transformers(tokenizer, name):
    encoded = ChatEncoder(tokenizer, template(name))(CHAT)
    expected = theirs(tokenizer, name).apply_chat_template(CHAT, tokenize=True, return_dict=False)
    assert encoded.ids.tolist() == expected
    assert encoded.text_bytes == len(theirs(tokenizer, name).apply_chat_template(CHAT, tokenize=False).encode())


def test_answers_are_those_that_a_marking_template_tells_transformers(tokenizer):
    expected = theirs(tokenizer, "marked").apply_chat_template(
        CHAT, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
    )["assistant_masks"]
    marked, unmarked = (ChatEncoder(tokenizer, template(name))(CHAT) for name in ("marked", "chatml"))
    assert marked.ids.tolist() == unmarked.ids.tolist()
    assert sum(expected) > 10
    assert marked.answers.tolist() == unmarked.answers.tolist() == [bool(each) for each in expected]


@pytest.mark.parametrize("name", TEMPLATES)
def test_each_answer_counts_with_the_token_that_ends_it_and_follows_its_own_prompt(tokenizer, name):
    encoder = ChatEncoder(tokenizer, template(name))
    encoded = encoder(CHAT)
    runs, at = [], 0
    while at < len(encoded.ids):
        end = at
        while end < len(encoded.ids) and encoded.answers[end]:
            end += 1
        if end > at:
            runs.append((at, end))
        at = end + 1
    said = [tokenizer.decode(encoded.ids[a : b - 1].tolist(), skip_special_tokens=False) for a, b in runs]
    trimmed = [message["content"].strip() for message in CHAT if message["role"] == "assistant"]
    assert [text.strip() for text in said] == trimmed
    assert {int(encoded.ids[b - 1]) for _, b in runs} == {encoder.end_id()}
    for (first, _), place in zip(runs, (2, 4), strict=True):
        prompt = theirs(tokenizer, name).apply_chat_template(
            CHAT[:place], tokenize=True, add_generation_prompt=True, return_dict=False
        )
        assert encoded.ids[:first].tolist() == prompt, "what a model is asked with later is what it was trained behind"


def test_of_preferences_the_last_answer_counts_alone(tokenizer):
    whole, last = (ChatEncoder(tokenizer, template("chatml"), only_last=only)(CHAT) for only in (False, True))
    first = len(ChatEncoder(tokenizer, template("chatml"))(CHAT[:3]).ids)
    assert last.answers[:first].sum() == 0
    assert (last.answers[first:] == whole.answers[first:]).all()


def test_a_token_that_an_answer_shares_with_its_prompt_counts(tokenizer):
    """A template that ends in a space, which the first word takes: the prompt alone has other tokens there."""
    spaced = "{% for message in messages %}{{ message.role + ': ' + message.content + '\n' }}{% endfor %}"
    spaced += "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    chat = [{"role": "user", "content": "it"}, {"role": "assistant", "content": "say"}]
    encoded = ChatEncoder(tokenizer, ChatTemplate(text=spaced, source="spaced"))(chat)
    prompt = tokenizer.encode("user: it\nassistant: ").ids
    text = tokenizer.encode("user: it\nassistant: say\n").ids
    assert encoded.ids.tolist() == text
    assert prompt != text[: len(prompt)], "the case that is meant"
    shared = next(number for number, (a, b) in enumerate(zip(prompt, text, strict=False)) if a != b)
    assert encoded.answers.tolist() == [number >= shared for number in range(len(text))]


FORGETS = (
    "{% for message in messages %}{% if message.role == 'user' or loop.last %}"
    "{{ message.role + ':' + message.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""Leaves out earlier answers."""


def test_a_template_that_writes_earlier_turns_in_another_way_is_refused_by_name():
    problem = template_problem(ChatTemplate(text=FORGETS, source="forgets"))
    assert problem == "the chat template writes the beginning of a chat in another way once the chat goes on"
    assert template_problem(ChatTemplate(text=FORGETS, source="forgets"), only_last=True) is None


@pytest.mark.parametrize(
    ("chat", "reason"),
    [
        ([{"role": "user", "content": "say <|im_end|>"}, {"role": "assistant", "content": "no"}], "special token"),
        ([{"role": "system", "content": "x"}, *CHAT[1:3]], "refuses it: no system here"),
    ],
)
def test_chats_that_cannot_be_learnt_from_say_why(tokenizer, chat, reason):
    text = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}" + TEMPLATES["chatml"]
    )
    with pytest.raises(Unfit, match=reason):
        ChatEncoder(tokenizer, ChatTemplate(text=text, source="strict"))(chat)
