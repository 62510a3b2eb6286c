"""The training run's section: lengths as the user wrote them, sizes that cannot be."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.train import TrainSection
from trainwright.spec.sections.updates.optimizer import AdamWAloneSection, MuonSection
from trainwright.spec.sections.updates.schedule import DecaySection, WsdSection


@pytest.mark.parametrize(
    ("section", "part"),
    [
        ({"sequence_tokens": 100, "batch_tokens": 250}, "nearest that is: 200"),
        ({"duration": "5"}, "unknown unit of duration"),
        ({"duration": "5 parsecs"}, "unknown unit of duration"),
        ({"optimizer": {"betas": [2, 0.9]}}, "less than 1"),
        ({"optimizer": {"name": "contract.additions.optimizers:momentum", "embedding_lr": 1}}, "embedding_lr"),
        ({"schedule": {"name": "contract.additions.schedules:square_root", "final_ratio": 0}}, "final_ratio"),
        ({"schedule": {"name": "constant", "final_ratio": 0.5}}, "final_ratio"),
        ({"batch_tokens": "1e30"}, "less than or equal to 1099511627776"),
        ({"batch_tokens": "1e30", "sequence_tokens": "1e30"}, "less than or equal to 1099511627776"),
        ({"exec": {"micro_batch": 0}}, "greater than 0"),
        ({"exec": {"threads": -1}}, "greater than 0"),
        ({"exec": {"threads": 100_000}}, "less than or equal to 1024"),
        ({"exec": {"time_limit": 0}}, "greater than 0"),
        ({"exec": {"checkpoint_to": ""}}, "names no place: give a folder or a URL"),
        ({"exec": {"checkpoint_to": " "}}, "names no place"),
        ({"exec": {"fit_memory": 20}}, "20 bytes hold no training: write the unit, 20GiB"),
        ({"exec": {"fit_memory": 20_480}}, "20,480 bytes hold no training: write the unit, 20480MiB"),
        (
            {"exec": {"best_by": "loss"}},
            "not min or max and a metric of validation: as min loss",
        ),
        ({"exec": {"best_by": "least loss"}}, "of classes and rewards max accuracy"),
        ({"exec": {"device": "gpu"}}, r"a GPU is called cuda \(NVIDIA\).*; training knows auto, cpu, cuda, rocm"),
        ({"exec": {"device": "hpu"}}, r"plans know hpu \(Gaudi\), and no training runs on it; training knows auto"),
    ],
)
def test_impossible_runs_say_why(section, part) -> None:
    with pytest.raises(ValidationError, match=part):
        TrainSection.model_validate(section)


def test_durations_keep_the_words_of_the_user() -> None:
    assert TrainSection(duration="20 tok/param").duration == "20 tok/param"
    assert TrainSection.model_validate({"batch_tokens": "64k", "sequence_tokens": 1000}).batch_tokens == 64_000


def test_the_sections_of_ours_have_their_own_names() -> None:
    train = TrainSection(optimizer=MuonSection(muon_lr=0.1), schedule=WsdSection())
    assert train.optimizer == MuonSection(name="muon", muon_lr=0.1)
    assert train.schedule == WsdSection(name="wsd")


def test_what_a_recipe_leaves_out_is_what_its_name_stands_for() -> None:
    assert TrainSection.model_validate({"optimizer": {"name": "adamw"}}).optimizer == AdamWAloneSection()
    assert TrainSection.model_validate({"schedule": {"name": "cosine"}}).schedule == DecaySection()
    assert TrainSection().model_dump() == TrainSection.model_validate({"optimizer": {}, "schedule": {}}).model_dump()
