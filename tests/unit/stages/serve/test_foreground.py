from __future__ import annotations

import pytest

from trainwright.core.errors import DataError, MachineError
from trainwright.stages.serve.foreground import open_server
from trainwright.stages.serve.server import listen

SETTINGS = {"model_name": "tiny", "host": "127.0.0.1", "max_concurrent": 1, "max_waiting": 0, "api_key": None}


def test_a_port_in_use_is_found_before_the_model_is_loaded(tmp_path):
    with listen("127.0.0.1", 0) as taken, pytest.raises(MachineError, match="the port is in use"):
        open_server(tmp_path / "no model at all", port=taken.getsockname()[1], **SETTINGS)


def test_a_model_that_cannot_be_loaded_leaves_the_port_free(tmp_path):
    with listen("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    with pytest.raises(DataError, match="no model here"):
        open_server(tmp_path, port=port, **SETTINGS)
    listen("127.0.0.1", port).close()


def test_it_serves(bundle):
    with open_server(bundle, port=0, **SETTINGS) as server:
        assert server.port > 0
