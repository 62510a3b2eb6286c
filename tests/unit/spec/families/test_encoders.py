"""Encoders: what stands on them, and what the counts do not cover."""

from __future__ import annotations

import pytest

from fixtures.reference_models import SMALL
from trainwright.core.errors import RecipeError
from trainwright.spec.families import encoders
from trainwright.spec.families.config_reader import ConfigReader


def keys_of(name, **changes):
    return ConfigReader(SMALL[name][1] | changes, where="config.json")


@pytest.mark.parametrize(
    ("architecture", "logits", "pooler", "classes"),
    [
        (None, True, False, 0),
        ("BertForMaskedLM", True, False, 0),
        ("BertForPreTraining", True, True, 2),
        ("BertForQuestionAnswering", False, False, 2),
        ("BertForSequenceClassification", False, True, 3),
        ("BertModel", False, True, 0),
    ],
)
def test_bert_stands_under_one_of_its_heads(architecture, logits, pooler, classes):
    labels = {"id2label": {"0": "a", "1": "b", "2": "c"}} if classes == 3 else {}
    spec = encoders.bert(keys_of("bert-masked", architectures=architecture and [architecture], **labels))
    assert (spec.makes_logits, spec.pooler, spec.classes) == (logits, pooler, classes)


@pytest.mark.parametrize(
    ("reader", "name", "changes", "message"),
    [
        (encoders.bert, "bert-masked", {"is_decoder": True}, "is_decoder=True"),
        (encoders.bert, "bert-masked", {"architectures": ["BertForMultipleChoice"]}, "BertForMultipleChoice"),
        (encoders.resnet, "resnet-basic", {"layer_type": "dense"}, r"layer_type \(seen 'dense', expected one of bott"),
        (encoders.resnet, "resnet-basic", {"depths": []}, r"depths \(seen \[\], expected a list of whole numbers"),
    ],
)
def test_what_the_counts_do_not_cover_is_refused(reader, name, changes, message):
    with pytest.raises(RecipeError, match=message):
        reader(keys_of(name, **changes))
