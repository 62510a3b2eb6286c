"""Shapes of networks that planner tests count, and a small workload."""

from __future__ import annotations

import pytest

from fixtures.planned_models import SHAPES
from trainwright.spec.workload import Workload


@pytest.fixture(params=SHAPES.values(), ids=SHAPES.keys())
def shape(request):
    return request.param


@pytest.fixture
def workload():
    return Workload(
        sequence_tokens=512,
        batch_tokens=4096,
        steps=100,
        precision="bf16",
        optimizer="adamw",
        validation_tokens=8192,
        validations=2,
    )
