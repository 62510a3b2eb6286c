"""A teacher is read as it was written, and refused in one line where training cannot learn from it."""

from __future__ import annotations

import pytest
import torch

from fixtures.tiny_models import decoder, spec, tokenizer, write_trained
from trainwright.core.errors import DataError, RecipeError
from trainwright.model import hf
from trainwright.model.build import build_network
from trainwright.model.tasks.distillation.teacher import check_teacher, load_teacher
from trainwright.spec.sections.tasks.keys import DistillSection

CPU = torch.device("cpu")


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer().save(str(path))
    return path


def loaded(folder, tokens, *, sequence_tokens: int = 16):
    section = DistillSection(name="distill", teacher=str(folder))
    return load_teacher(section, tokens, sequence_tokens=sequence_tokens, device=CPU, dtype=torch.float32)


@pytest.mark.parametrize("form", ["model.json", "config.json"])
def test_it_says_what_the_model_said_that_was_written(tmp_path, tokens, form) -> None:
    model = decoder(seed=3)
    folder = write_trained(tmp_path / "teacher", model, tokenizer())
    if form == "config.json":
        (folder / "model.json").unlink()
        hf.write(folder, model.spec, dict(model.named_parameters()), dtype=torch.float32, extra={})
    teacher = loaded(folder, tokens)
    ids = torch.randint(0, 320, (2, 16), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(teacher.logits(teacher(ids)), model.logits(model(ids)))
    assert not any(parameter.requires_grad for parameter in teacher.parameters())


def test_another_tokenizer_vocabulary_or_length_is_refused(tmp_path, tokens) -> None:
    folder = write_trained(tmp_path / "teacher", decoder(), tokenizer())
    tokenizer(300).save(str(tmp_path / "other.json"))
    with pytest.raises(RecipeError, match="task.teacher: the pretrained model has another tokenizer"):
        check_teacher(folder, tmp_path / "other.json", sequence_tokens=16)
    with pytest.raises(RecipeError, match=r"task.teacher: the teacher reads no sequence so long \(seen 96 tokens"):
        check_teacher(folder, tokens, sequence_tokens=97)
    wide = write_trained(tmp_path / "wide", decoder(vocabulary=328), tokenizer())
    with pytest.raises(RecipeError, match=r"the teacher has another vocabulary .*328 entries.*expected 320"):
        check_teacher(wide, tokens, sequence_tokens=16)
    check_teacher(wide, None, sequence_tokens=16)


def test_a_model_that_writes_no_text_teaches_none(tmp_path, tokens) -> None:
    shape = spec("bert")
    network = build_network(shape)
    network.initialise(0)
    folder = write_trained(tmp_path / "encoder", network, tokenizer())
    with pytest.raises(RecipeError, match=r"task.teacher: a teacher predicts next tokens \(seen bert"):
        check_teacher(folder, tokens, sequence_tokens=16)


def test_a_weight_that_is_no_number_is_named(tmp_path, tokens) -> None:
    model = decoder()
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    with pytest.raises(DataError, match="a weight of the teacher is not finite"):
        loaded(write_trained(tmp_path / "broken", model, tokenizer()), tokens)
