"""What the harness is told of a network is what its own model of Hugging Face tells it of the same weights."""

from __future__ import annotations

import pytest
import torch
import transformers
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers.processors import TemplateProcessing

from fixtures import tiny_models
from trainwright.core.errors import RecipeError
from trainwright.model import hf
from trainwright.model.chats.template import BUILT_IN, ChatTemplate
from trainwright.model.conventions import Conventions
from trainwright.stages.evaluate.harness import model
from trainwright.stages.evaluate.harness.model import HarnessModel, _sampling

LONG = "for index, value in enumerate(values):\n    total += value * index\n" * 6
"""More tokens than the context of 96."""
PAIRS = [
    ("def add(left", ", right):"),
    ("", "return left"),
    ("trailing space ", "value"),
    (LONG, " + right"),
    ("x", LONG[:200]),
    ("你好", "世界"),
]


def asked(kind, *arguments):
    return [Instance(request_type=kind, doc={}, arguments=each, idx=number) for number, each in enumerate(arguments)]


def complete_characters(text):
    """A text without what stands for bytes that are no character: how many, is each decoder's own choice."""
    return text.replace("\N{REPLACEMENT CHARACTER}", "")


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def both(request, tmp_path_factory):
    """Ours and the harness's own, of one network."""
    network, tokenizer = tiny_models.decoder(request.param), tiny_models.tokenizer()
    end = tokenizer.token_to_id(tiny_models.END)
    conventions = Conventions(end_ids=frozenset([end]), start_id=end, chat_template=None, special_tokens={})
    ours = HarnessModel(network, tokenizer, conventions, batch_sequences=4, progress=lambda done, total: None)
    folder = tmp_path_factory.mktemp("written")
    hf.write(folder, network.spec, dict(network.named_parameters()), dtype=torch.float32, extra={"eos_token_id": end})
    theirs = HFLM(
        pretrained=transformers.AutoModelForCausalLM.from_pretrained(folder),
        tokenizer=transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, bos_token=tiny_models.END, eos_token=tiny_models.END, pad_token=tiny_models.END
        ),
        batch_size=3,
        max_length=network.spec.context_tokens,
    )
    return ours, theirs


def test_continuations_are_as_likely(both):
    ours, theirs = (each.loglikelihood(asked("loglikelihood", *PAIRS), disable_tqdm=True) for each in both)
    assert [likeliest for _, likeliest in ours] == [likeliest for _, likeliest in theirs]
    assert [score for score, _ in ours] == pytest.approx([score for score, _ in theirs], rel=1e-4)


def test_the_likeliest_continuation_is_known_as_such(both):
    ours, _ = both
    (answer,) = ours.generate_until(asked("generate_until", ("def add(left", {"until": [], "max_gen_toks": 1})))
    if answer:  # an incomplete character, or the end of a text, is no text
        ((_, likeliest),) = ours.loglikelihood(asked("loglikelihood", ("def add(left", answer)))
        assert likeliest


def test_whole_texts_are_as_likely_in_windows_of_the_context(both):
    # No part of it comes twice: the harness's own model mixes up equal windows of one text.
    long = "".join(f"value{number} = {number * number}\n" for number in range(60))
    texts = [("def add",), (long,), ("value",)]
    ours, theirs = (
        each.loglikelihood_rolling(asked("loglikelihood_rolling", *texts), disable_tqdm=True) for each in both
    )
    assert ours == pytest.approx(theirs, rel=1e-4)


def test_the_same_texts_are_written(both):
    settings = {"until": ["\n", "z"], "max_gen_toks": 16}
    requests = asked("generate_until", *((text, settings) for text in ("def add(left", "for index", LONG)))
    ours, theirs = (each.generate_until(requests, disable_tqdm=True) for each in both)
    assert list(map(complete_characters, ours)) == list(map(complete_characters, theirs))


def test_batches_change_nothing(both):
    ours, _ = both
    alone = [ours.loglikelihood(asked("loglikelihood", pair))[0][0] for pair in PAIRS]
    assert alone == pytest.approx([score for score, _ in ours.loglikelihood(asked("loglikelihood", *PAIRS))], rel=1e-5)


def test_an_answer_longer_than_the_context_is_refused(both):
    ours, _ = both
    with pytest.raises(RecipeError, match="leaves no room for its question .*answers of 200 tokens, a context of 96"):
        ours.generate_until(asked("generate_until", ("def", {"until": [], "max_gen_toks": 200})))


def test_a_context_of_spaces_alone_begins_what_is_scored(both):
    ours, _ = both
    (spaces, _), (nothing, _) = ours.loglikelihood(asked("loglikelihood", (" ", "value"), ("", " value")))
    assert spaces == pytest.approx(nothing, rel=1e-5)
    assert ours.loglikelihood(asked("loglikelihood", (" ", "")))[0][0] < 0


def test_long_answers_are_told_of_on_the_way(both, monkeypatch):
    ours, _ = both
    told = []
    monkeypatch.setattr(ours, "_progress", lambda done, total: told.append((done, total)))
    monkeypatch.setattr(model, "ROUNDS", 1)
    settings = {"until": [], "max_gen_toks": 1}
    ours.generate_until(asked("generate_until", *((f"value {number}", settings) for number in range(9))))
    assert told == [(4, 9), (8, 9), (9, 9)]


def test_a_prompt_that_is_asked_again_gets_an_answer_of_its_own(both):
    ours, _ = both
    drawn = {"until": [], "max_gen_toks": 12, "do_sample": True, "temperature": 1.0}
    (request,) = asked("generate_until", ("def add(left", drawn))
    texts = ours.generate_until([request] * 4)
    assert len(set(texts)) == 4
    assert ours.generate_until([request] * 4) == texts
    assert len(set(ours.generate_until(asked("generate_until", ("def", {**drawn, "do_sample": False})) * 3))) == 1


def test_answers_are_drawn_at_a_temperature_of_1_where_a_task_only_says_that_they_are():
    assert _sampling({"do_sample": True}, choice=0).temperature == 1
    assert [_sampling(each, choice=0).temperature for each in ({}, {"temperature": 0.5})] == [0, 0.5]


def test_a_text_begins_with_the_token_that_its_tokenizer_puts_there_and_once():
    tokenizer = tiny_models.tokenizer()
    begin = tokenizer.token_to_id(tiny_models.END)
    tokenizer.post_processor = TemplateProcessing(
        single=f"{tiny_models.END} $A", special_tokens=[(tiny_models.END, begin)]
    )
    first = begin - 1 if begin else begin + 1  # another special token, as <unk> is
    conventions = Conventions(end_ids=frozenset([first, begin]), start_id=first, chat_template=None, special_tokens={})
    asks = HarnessModel(tiny_models.decoder(), tokenizer, conventions, batch_sequences=1, progress=print)
    assert asks.prefix_token_id == begin
    assert asks.tok_encode("def").count(begin) == asks.tok_encode(tiny_models.END + "def").count(begin) == 1


CHAT = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "2 + 2?"}]
BEGUN = [*CHAT, {"role": "assistant", "content": "The answer is"}]


@pytest.mark.parametrize("name", ["chatml", "turns"])
@pytest.mark.parametrize(("messages", "to_answer"), [(CHAT, True), (BEGUN, False)])
def test_chats_are_rendered_as_transformers_does_with_an_answer_that_has_begun_left_open(name, messages, to_answer):
    text = BUILT_IN[name]
    template = ChatTemplate(text=text, source=name, special_tokens={"eos_token": tiny_models.END})
    ours = chatting(template).apply_chat_template(messages, to_answer)
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tiny_models.tokenizer(), eos_token=tiny_models.END, chat_template=text
    )
    settings = {"add_generation_prompt": to_answer, "continue_final_message": not to_answer}
    assert ours == theirs.apply_chat_template(messages, tokenize=False, **settings)


def test_a_template_that_takes_no_system_is_asked_without_one():
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + BUILT_IN["chatml"]
    asks = chatting(ChatTemplate(text=refusing, source="here"))
    assert asks.apply_chat_template(CHAT).startswith("<|im_start|>user\n2 + 2?")


def chatting(template):
    conventions = Conventions(end_ids=frozenset([0]), start_id=0, chat_template=None, special_tokens={})
    network, tokenizer = tiny_models.decoder(), tiny_models.tokenizer()
    return HarnessModel(
        network,
        tokenizer,
        conventions,
        batch_sequences=1,
        render=template.renderer(),
        progress=lambda done, total: None,
    )
