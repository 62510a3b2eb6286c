"""What torch says of its own is left out for a while, and only so long."""

from __future__ import annotations

import logging
import os

import pytest

from trainwright.stages.train.ranks.quiet import OF_THE_AGENT, no_warnings_below, quiet_loggers


@pytest.mark.parametrize("module", ["agent.server.api", "multiprocessing.api"])
def test_torchs_agent_says_nothing_of_its_own(module: str) -> None:
    logger = logging.getLogger(f"torch.distributed.elastic.{module}")
    assert logger.isEnabledFor(logging.WARNING)
    with quiet_loggers(*OF_THE_AGENT):
        assert not logger.isEnabledFor(logging.ERROR)
    assert logger.isEnabledFor(logging.WARNING)


@pytest.mark.parametrize("own", [None, "INFO"])
def test_warnings_below_python_are_left_out_unless_a_user_asked(monkeypatch, own) -> None:
    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL", raising=False)
    if own is not None:
        monkeypatch.setenv("TORCH_CPP_LOG_LEVEL", own)
    with no_warnings_below():
        assert os.environ["TORCH_CPP_LOG_LEVEL"] == (own or "ERROR")
    assert os.environ.get("TORCH_CPP_LOG_LEVEL") == own
