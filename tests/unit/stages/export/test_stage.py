from __future__ import annotations

import json

import pytest
import torch
import transformers

from trainwright.artifact.events import Events
from trainwright.artifact.stage import Context
from trainwright.artifact.store import open_artifact
from trainwright.core.errors import DataError, TrainwrightError
from trainwright.model.bundle import load_bundle
from trainwright.model.generation.generate import complete
from trainwright.model.tasks.documents.regress import Regress
from trainwright.model.tasks.embeddings.contrast import pooled
from trainwright.model.tasks.words.classify_tokens import ClassifyTokens
from trainwright.spec.families.family import huggingface_form
from trainwright.spec.generation import Sampling
from trainwright.spec.parts.targets import TargetScale
from trainwright.spec.sections.task import TaskSection
from trainwright.spec.sections.tasks.keys import EmbedSection, RegressSection, RewardSection
from trainwright.stages.export import run
from trainwright.stages.export.huggingface import HuggingFace

TEXT = "def add(left, right):\n    return left + 你好 🙂 <|endoftext|> x"


def export(recipe, trained, out, **changes):
    out.mkdir()
    changed = recipe.model_copy(update={"export": recipe.export.model_copy(update=changes)})
    with Events(None, run="test") as events:
        context = Context(recipe=changed, inputs={"checkpoint": trained}, out=out, root=out.parent, events=events)
        return run(context)


@pytest.mark.parametrize("shape", [(family, tied) for family in ("llama", "gpt2") for tied in (True, False)])
def test_transformers_loads_it_with_the_same_logits_and_tokens(tiny, make_trained, recipe, tmp_path, shape):
    model = tiny.decoder(shape[0], tied=shape[1])
    result = export(recipe, make_trained(model), tmp_path / "out")
    directory = tmp_path / "out" / "huggingface"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(directory).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    ids = tiny.tokenizer().encode(TEXT).ids
    assert tokenizer(TEXT)["input_ids"] == ids
    assert tokenizer.decode(ids) == TEXT
    with torch.no_grad():
        expected = model.logits(model(torch.tensor([ids])))
        torch.testing.assert_close(theirs(torch.tensor([ids])).logits, expected, atol=1e-4, rtol=0)
    end = tiny.tokenizer().token_to_id(tiny.END)
    assert theirs.generation_config.eos_token_id == theirs.config.bos_token_id == tokenizer.eos_token_id == end
    assert tokenizer.model_max_length == model.spec.context_tokens
    assert result.summary["logit_difference"] == result.summary["rounding_difference"] == 0.0


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_a_number_has_the_loss_and_the_gradients_of_transformers(tiny, make_trained, recipe, tmp_path, family):
    head = {"classes": 1, "language_head": False}
    model = tiny.encoder(family, **head, pooler=True) if family == "bert" else tiny.decoder(family, **head)
    told = recipe.model_copy(update={"task": RegressSection(name="regress")})
    export(told, make_trained(model, beside={"target_scale.json": '{"mean": 30.0, "std": 4.0}'}), tmp_path / "out")
    directory = tmp_path / "out" / "huggingface"
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(directory).eval()
    assert (theirs.config.problem_type, theirs.config.num_labels) == ("regression", 1)
    assert (theirs.config.target_mean, theirs.config.target_std) == (30, 4)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    inputs = tokenizer("def add", return_tensors="pt", return_token_type_ids=False)
    tokens, scaled = inputs["input_ids"], torch.tensor([2.0])  # (38 - 30) / 4
    frame = (0, 0) if family == "bert" else None
    task = Regress(scale=TargetScale(mean=30.0, std=4.0), sequence_tokens=9, padding=0, frame=frame)
    batch = {"tokens": tokens, "last": torch.tensor([tokens.shape[1] - 1]), "number": scaled}
    model.requires_grad_(True)
    inputs_of = task.inputs(model, batch)
    loss, weight = task.loss(model, task.hidden(model, inputs_of), inputs_of)
    (loss / weight).backward()
    made = theirs(**inputs, labels=scaled)
    made.loss.backward()
    torch.testing.assert_close(made.loss, loss / weight, atol=1e-4, rtol=1e-5)
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    expected = {name: weight.grad for name, weight in theirs.named_parameters() if weight.grad is not None}
    ours = huggingface_form(family, where="test").to_hf(gradients, model.spec)
    assert expected.keys() <= ours.keys()
    if family == "bert":  # theirs give the row of the padding token, which is the frame here, no gradient
        ours["bert.embeddings.word_embeddings.weight"][theirs.config.pad_token_id] = 0
    for name, gradient in expected.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-4, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")
    card = (directory / "README.md").read_text()
    assert "model.config.target_std + model.config.target_mean" in card and "scaled error per document" in card
    back, _ = load_bundle(directory)
    with torch.no_grad():
        assert torch.equal(back(tokens), model(tokens))


@pytest.mark.parametrize(("family", "pooling"), [("bert", "mean"), ("roberta", "cls"), ("modernbert", "mean")])
def test_embeddings_are_those_of_transformers_body_pooled_as_its_files_say(
    tiny, make_trained, recipe, tmp_path, family, pooling
):
    model = tiny.encoder(family, language_head=False)
    how = EmbedSection(name="embed", pooling=pooling)
    result = export(recipe.model_copy(update={"task": how}), make_trained(model), tmp_path / "out")
    assert result.summary["logit_difference"] == 0
    directory = tmp_path / "out" / "huggingface"
    read = {name: json.loads((directory / name).read_text()) for name in ("modules.json", "1_Pooling/config.json")}
    assert [each["path"] for each in read["modules.json"]] == ["", "1_Pooling", "2_Normalize"]
    assert [each["type"].rpartition(".")[2] for each in read["modules.json"]] == ["Transformer", "Pooling", "Normalize"]
    wanted = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}[pooling]
    assert [key for key, value in read["1_Pooling/config.json"].items() if value is True] == [wanted, "include_prompt"]
    assert read["1_Pooling/config.json"]["word_embedding_dimension"] == model.spec.width
    bare = {} if family == "modernbert" else {"add_pooling_layer": False}
    assert json.loads((directory / "sentence_bert_config.json").read_text()).get("model_args", {}) == bare
    theirs = transformers.AutoModel.from_pretrained(directory, **bare).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    inputs = tokenizer(["def add", "x + yz * 3"], padding=True, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        hidden, counts = theirs(**inputs).last_hidden_state, inputs["attention_mask"].unsqueeze(-1)
        vectors = hidden[:, 0] if pooling == "cls" else (hidden * counts).sum(dim=1) / counts.sum(dim=1)
        expected = vectors / vectors.norm(dim=1, keepdim=True)
        documents = 1 - inputs["attention_mask"]
        own = pooled(model(inputs["input_ids"], documents=documents), documents, texts=1, pooling=pooling)[:, 0]
    torch.testing.assert_close(own, expected, atol=1e-5, rtol=0)
    card = (directory / "README.md").read_text()
    assert "SentenceTransformer(" in card and "nats per pair" in card and "a vector of 32 numbers" in card
    longest = json.loads((directory / "sentence_bert_config.json").read_text())["max_seq_length"]
    assert f"read up to {longest} tokens in training" in card


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_rewards_of_chats_are_those_of_transformers(tiny, make_trained, recipe, tmp_path, family):
    """Each chat is written by the template of the bundle; the two are padded to one length there."""
    model = tiny.decoder(family, classes=1, language_head=False)
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|endoftext|>{% endfor %}"
    settings = {"tokenizer_config.json": json.dumps({"chat_template": template, "eos_token": tiny.END})}
    told = recipe.model_copy(update={"task": RewardSection(name="reward")})
    export(told, make_trained(model, beside=settings), tmp_path / "out")
    directory = tmp_path / "out" / "huggingface"
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(directory).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    chats = [[{"role": "user", "content": "add?"}, {"role": "assistant", "content": say}] for say in ("def", "x + yz")]
    texts = tokenizer.apply_chat_template(chats, tokenize=False)
    inputs = tokenizer(texts, add_special_tokens=False, padding=True, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        rewards = theirs(**inputs).logits
        alone = [tiny.tokenizer().encode(text.removesuffix(tiny.END)).ids for text in texts]
        expected = torch.stack([model.logits(model(torch.tensor([ids])))[0, -1] for ids in alone])
    torch.testing.assert_close(rewards, expected, atol=1e-4, rtol=0)
    assert theirs.config.num_labels == 1 and theirs.config.problem_type is None
    card = (directory / "README.md").read_text()
    assert "gives a reward to an answer" in card and "nats per pair" in card and "apply_chat_template" in card


@pytest.mark.parametrize("family", ["llama", "gpt2", "bert", "roberta"])
def test_labels_of_words_have_the_loss_and_the_logits_of_transformers(tiny, make_trained, recipe, tmp_path, family):
    names, encodes = ("O", "B-x", "I-x"), family in ("bert", "roberta")
    head = {"classes": 3, "labels": names, "language_head": False}
    model = tiny.encoder(family, **head) if encodes else tiny.decoder(family, **head, token_classes=True)
    with torch.no_grad():
        model.logit_bias.copy_(torch.tensor([0.5, -0.25, 0.125]))
    told = recipe.model_copy(update={"task": TaskSection(name="classify-tokens", labels=names)})
    export(told, make_trained(model), tmp_path / "out")
    directory = tmp_path / "out" / "huggingface"
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(directory)
    assert theirs.config.id2label == dict(enumerate(names))
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    inputs = tokenizer("def add(x)", return_tensors="pt", return_token_type_ids=False)
    tokens = inputs["input_ids"]
    targets = torch.full_like(tokens, -100)
    targets[0, 1:-1:2] = torch.arange(len(targets[0, 1:-1:2])) % 3
    made = theirs.train()(**inputs, labels=targets)  # nothing is dropped, in training neither
    form = {"sequence_tokens": 9, "padding": 0, "frame": (0, 0) if encodes else None}
    task = ClassifyTokens(labels=names, class_of_label=(0, 1, 2), **form)
    batch = {"tokens": tokens, "last": torch.tensor([tokens.shape[1] - 1]), "targets": targets}
    here = task.inputs(model, batch)
    hidden = task.hidden(model, here)
    loss, weight = task.loss(model, hidden, here)
    torch.testing.assert_close(made.logits, model.logits(hidden), atol=1e-4, rtol=0)
    torch.testing.assert_close(made.loss, loss / weight, atol=1e-5, rtol=1e-5)
    card = (directory / "README.md").read_text()
    assert "AutoModelForTokenClassification" in card and "token-classification" in card
    back, _ = load_bundle(directory)
    with torch.no_grad():
        assert torch.equal(back.logits(back(tokens)), model.logits(model(tokens)))


def test_a_family_without_labels_of_words_there_is_refused(tiny, make_trained, recipe, tmp_path):
    model = tiny.decoder("granite", classes=2, language_head=False, token_classes=True)
    with pytest.raises(TrainwrightError, match="Hugging Face's granite has no ForTokenClassification"):
        export(recipe, make_trained(model), tmp_path / "out")


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_greedy_text_is_that_of_transformers(tiny, make_trained, recipe, tmp_path, family):
    export(recipe, make_trained(tiny.decoder(family)), tmp_path / "out")
    directory = tmp_path / "out" / "huggingface"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(directory).eval()
    model, tokenizer = load_bundle(directory)
    for prompt in ("def add", "for index, value", "你好"):
        ids = tokenizer.encode(prompt).ids
        made = theirs.generate(torch.tensor([ids]), max_new_tokens=40, do_sample=False, pad_token_id=0)[0, len(ids) :]
        (ours,) = complete(model, tokenizer, [prompt], Sampling(max_tokens=40))
        assert ours.text == tokenizer.decode(made.tolist())


def test_bfloat16_is_exact_after_rounding_and_says_what_rounding_did(tiny, make_trained, recipe, tmp_path):
    result = export(recipe, make_trained(tiny.decoder()), tmp_path / "out", dtype="bf16")
    directory = tmp_path / "out" / "huggingface"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(directory)
    assert theirs.dtype == torch.bfloat16
    assert result.summary["logit_difference"] == 0.0 < result.summary["rounding_difference"]
    weights = (directory / "model.safetensors").stat().st_size
    assert 2 * result.summary["parameters"] < weights < 2.5 * result.summary["parameters"]


def test_a_damaged_model_is_not_exported(tiny, make_trained, recipe, tmp_path):
    trained = make_trained(tiny.decoder())
    weights = trained.path / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with pytest.raises(DataError, match="sha256 does not match the manifest"):
        export(recipe, open_artifact(trained.path), tmp_path / "out")


def test_a_bundle_that_computes_something_else_is_an_error(tiny, make_trained, recipe, tmp_path, monkeypatch):
    write = HuggingFace.write

    def faulty(self, directory, network, **arguments):
        network.norm.weight[3] += 0.1
        write(self, directory, network, **arguments)

    monkeypatch.setattr(HuggingFace, "write", faulty)
    with pytest.raises(TrainwrightError, match="the huggingface bundle computes other logits"):
        export(recipe, make_trained(tiny.decoder()), tmp_path / "out")


def test_the_same_model_gives_the_same_bytes(tiny, make_trained, recipe, tmp_path):
    trained = make_trained(tiny.decoder())
    for name in ("a", "b"):
        export(recipe, trained, tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "a" / "huggingface").iterdir())
    assert files == [
        "README.md",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    for name in files:
        first, second = ((tmp_path / side / "huggingface" / name).read_bytes() for side in "ab")
        assert first == second, name
    assert json.loads((tmp_path / "a" / "huggingface" / "config.json").read_text())["eos_token_id"] is not None


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_several_labels_have_their_problem_and_the_loss_of_transformers(tiny, make_trained, recipe, tmp_path, family):
    head = {"classes": 3, "labels": ("old", "short", "odd"), "language_head": False}
    model = tiny.encoder(family, **head, pooler=True) if family == "bert" else tiny.decoder(family, **head)
    many = recipe.model_copy(update={"task": TaskSection(name="classify-many", labels=head["labels"])})
    export(many, make_trained(model), tmp_path / "out")
    directory = tmp_path / "out" / "huggingface"
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(directory).eval()
    assert theirs.config.problem_type == "multi_label_classification"
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    inputs = tokenizer("def add", return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        odds = model.logits(model(inputs["input_ids"])[:, 0 if family == "bert" else -1])
        made = theirs(**inputs, labels=torch.tensor([[1.0, 0.0, 1.0]]))
    torch.testing.assert_close(made.logits, odds, atol=1e-4, rtol=0)
    expected = torch.log1p(torch.exp(odds * torch.tensor([-1, 1, -1]))).mean()
    torch.testing.assert_close(made.loss, expected, atol=1e-4, rtol=0)
    card = (directory / "README.md").read_text()
    assert "if odds[number] > 0" in card and "says yes or no to each of its labels" in card


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_classifier_answers_in_transformers_as_it_does_here(tiny, make_trained, recipe, tmp_path, family):
    labels = ("ham", "spam", "unsure")
    model = tiny.decoder(family, classes=3, labels=labels, language_head=False)
    classifies = recipe.model_copy(update={"task": TaskSection(name="classify", labels=("x", "y"))})
    export(classifies, make_trained(model), tmp_path / "out")
    directory = tmp_path / "out" / "huggingface"
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(directory).eval()
    assert [theirs.config.id2label[n] for n in range(3)] == list(labels)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    texts = ["def add", "a much longer text than the first one"]
    padded = tokenizer(texts, return_tensors="pt", padding=True, return_token_type_ids=False)
    with torch.no_grad():
        alone = [model.logits(model(torch.tensor([tiny.tokenizer().encode(text).ids])))[0, -1] for text in texts]
        torch.testing.assert_close(theirs(**padded).logits, torch.stack(alone), atol=1e-4, rtol=0)
    assert not (directory / "generation_config.json").exists()
    assert "AutoModelForSequenceClassification" in (directory / "README.md").read_text()
    again, _ = load_bundle(directory)
    assert again.spec == model.spec
