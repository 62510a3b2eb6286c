from __future__ import annotations

import json
from dataclasses import replace

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from trainwright.stages.export.huggingface import HuggingFace, for_encoder


def test_end_of_text_is_the_recipes_not_any_special_token(tiny, make_trained, recipe, tmp_path):
    made = tiny.tokenizer()
    made.add_special_tokens(["<|user|>"])
    model = tiny.decoder(vocabulary=321)
    trained = make_trained(model, made)
    HuggingFace().write(tmp_path, model, recipe=recipe, trained=trained, dtype=torch.float32)
    settings = json.loads((tmp_path / "generation_config.json").read_text())
    assert settings == {"bos_token_id": made.token_to_id(tiny.END), "eos_token_id": made.token_to_id(tiny.END)}
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["eos_token"] == tiny.END
    assert (tmp_path / "tokenizer.json").read_bytes() == (trained.path / "tokenizer.json").read_bytes()


def test_the_card_of_a_model_with_a_base_says_so(tiny, make_trained, recipe, tmp_path):
    model = tiny.decoder("llama")
    trained = make_trained(model)
    begun = replace(trained, manifest=replace(trained.manifest, inputs={"base": "0" * 64}))
    for artifact, origin in ((trained, "scratch"), (begun, "the weights of another model")):
        HuggingFace().write(tmp_path, model, recipe=recipe, trained=artifact, dtype=torch.float32)
        assert f"trained from {origin} with" in (tmp_path / "README.md").read_text()


def test_an_encoders_tokenizer_frames_texts_as_training_did(tiny, make_trained, recipe, tmp_path):
    model = tiny.encoder(classes=3, labels=("a", "b", "c"), pooler=True, language_head=False)
    end = tiny.tokenizer().token_to_id(tiny.END)
    HuggingFace().write(tmp_path, model, recipe=recipe, trained=make_trained(model), dtype=torch.float32)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = ["def add", "for index, value in enumerate(values): total += 1"]
    batch = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        logits = theirs(**batch).logits
        for row, text in enumerate(texts):
            ids = [end, *tiny.tokenizer().encode(text).ids, end]
            torch.testing.assert_close(logits[row], model.logits(model(torch.tensor([ids])))[0, 0], atol=1e-4, rtol=0)
    assert theirs.config.id2label == {0: "a", 1: "b", 2: "c"}
    assert not (tmp_path / "generation_config.json").exists()


def test_a_family_that_counts_positions_from_its_padding_keeps_it(tiny, make_trained, recipe, tmp_path):
    model = tiny.encoder("roberta")
    HuggingFace().write(tmp_path, model, recipe=recipe, trained=make_trained(model), dtype=torch.float32)
    assert json.loads((tmp_path / "config.json").read_text())["pad_token_id"] == 1
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    batch = tokenizer(["def add", "for index"], padding=True, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        expected = model.logits(model(batch["input_ids"], documents=1 - batch["attention_mask"]))
        seen = batch["attention_mask"] > 0
        torch.testing.assert_close(theirs(**batch).logits[seen], expected[seen], atol=1e-4, rtol=0)
    assert "masked" not in (tmp_path / "README.md").read_text() and "fill-mask" in (tmp_path / "README.md").read_text()


def test_a_frame_and_a_mask_of_the_tokenizers_own_stay(tiny):
    made = tiny.tokenizer()
    made.add_special_tokens(["[CLS]", "[SEP]", "[MASK]"])
    pairs = [(name, made.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    made.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=pairs)
    stored, roles = for_encoder(made, tiny.END)
    assert roles == {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    assert Tokenizer.from_buffer(stored).encode("a").ids == made.encode("a").ids
