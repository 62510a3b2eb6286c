"""A conversation asks what transformers' template writes, and says what the engine generates for it at once."""

from __future__ import annotations

import itertools

import pytest
import transformers

from fixtures import tiny_models as tiny
from trainwright.core.errors import DataError, RecipeError, TrainingError
from trainwright.model.bundle import load_bundle
from trainwright.model.chats.conversation import open_conversation
from trainwright.model.chats.template import BUILT_IN, ChatTemplate
from trainwright.model.generation.generate import complete
from trainwright.spec.generation import Failure, Sampling

TOKENS = {"bos_token": tiny.END, "eos_token": tiny.END}
TEMPLATE = ChatTemplate(text=BUILT_IN["turns"], source="turns", special_tokens=TOKENS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tiny.write_trained(tmp_path_factory.mktemp("chat"), tiny.decoder("llama"), tiny.tokenizer())
    TEMPLATE.write(made)
    return made


def said(conversation, question, **options):
    """The text of an answer, and the answer."""
    pieces = list(conversation.ask(question, **options))
    assert "".join(text for text, _ in pieces) == pieces[-1][1].text
    return pieces[-1][1]


def prompt_of(messages):
    """Tokens as transformers writes them."""
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tiny.tokenizer(), chat_template=TEMPLATE.text, **TOKENS
    )
    return theirs.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_each_answer_is_that_of_the_whole_conversation(folder, temperature) -> None:
    sampling = Sampling(max_tokens=5, temperature=temperature, seed=3)
    conversation = open_conversation(folder, sampling=sampling, system="Be.")
    network, tokenizer = load_bundle(folder)
    messages = [{"role": "system", "content": "Be."}]
    for question in ("hi", "so"):
        messages.append({"role": "user", "content": question})
        prompt = prompt_of(messages)
        (expected,) = complete(network, tokenizer, [prompt], sampling)
        answer = said(conversation, question)
        assert (answer.text, answer.prompt_tokens, answer.finish) == (expected.text, len(prompt), expected.finish)
        messages.append({"role": "assistant", "content": answer.text})
    assert conversation.messages == messages
    conversation.reset()
    assert conversation.messages == messages[:1]
    assert said(conversation, "hi").text == messages[2]["content"], "the same seed, the same answer"


def test_an_answer_ends_where_the_context_is_full_and_says_so(folder) -> None:
    conversation = open_conversation(folder, sampling=Sampling(max_tokens=10**9, seed=1))
    answer = said(conversation, "go on")
    assert (answer.finish, answer.prompt_tokens + answer.tokens) == ("context", 96)
    with pytest.raises(RecipeError, match=r"no room for an answer \(seen \d+ tokens, expected below 96, .*/reset"):
        list(conversation.ask("more"))
    assert len(conversation.messages) == 2, "a message that is refused was never said"
    conversation.reset()
    with pytest.raises(RecipeError, match="seen at least"):
        list(conversation.ask("x" * 5000))
    assert said(conversation, "go on").text == answer.text


def test_an_answer_that_is_stopped_is_kept_as_far_as_it_came(folder) -> None:
    conversation = open_conversation(folder, sampling=Sampling(max_tokens=20))
    whole = said(conversation, "hi").text
    conversation.reset()
    assert list(conversation.ask("hi", stopped=lambda: True)) == conversation.messages == []
    times = itertools.count()
    answer = said(conversation, "hi", stopped=lambda: next(times) == 5)
    assert (answer.finish, answer.tokens) == ("interrupted", 5)
    assert whole.startswith(answer.text) and conversation.messages[-1]["content"] == answer.text
    conversation.reset()
    assert said(conversation, "hi").text == whole, "the engine's place is free again"


def test_an_answer_that_nobody_reads_to_its_end_was_never_given(folder) -> None:
    conversation = open_conversation(folder, sampling=Sampling(max_tokens=20))
    pieces = conversation.ask("hi")
    next(pieces)
    pieces.close()
    assert conversation.messages == []
    assert conversation.generator.unfinished == 0


def test_a_model_that_fails_ends_the_conversation(folder, monkeypatch) -> None:
    conversation = open_conversation(folder, sampling=Sampling(max_tokens=20))
    monkeypatch.setattr(conversation.generator, "step", lambda: [Failure(key=0, reason="the highest logit is nan")])
    with pytest.raises(TrainingError, match="cannot answer .*nan"):
        list(conversation.ask("hi"))


def test_a_template_that_refuses_a_message_is_one_line(tmp_path) -> None:
    made = tiny.write_trained(tmp_path / "model", tiny.decoder("llama"), tiny.tokenizer())
    ChatTemplate(text="{{ raise_exception('no system here') }}", source="x").write(made)
    conversation = open_conversation(made, sampling=Sampling(max_tokens=2))
    with pytest.raises(RecipeError, match="template refuses this message .*no system here"):
        list(conversation.ask("hi"))


def test_a_model_without_a_template_is_refused_before_its_weights_are_read(tmp_path) -> None:
    made = tiny.write_trained(tmp_path / "model", tiny.decoder("llama"), tiny.tokenizer())
    (made / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"no chat template .*expected chat_template\.jinja.*task\.name=chat"):
        open_conversation(made, sampling=Sampling(max_tokens=2))


def test_a_model_that_writes_no_text_is_not_told_to_learn_chats(tmp_path) -> None:
    made = tiny.write_trained(tmp_path / "model", tiny.encoder("bert", language_head=False), tiny.tokenizer())
    with pytest.raises(RecipeError, match=r"writes no text \(seen encoder"):
        open_conversation(made, sampling=Sampling(max_tokens=2))
