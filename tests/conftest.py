"""What every test stands on: one thread, no network, no settings of whoever runs it."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import hypothesis
import pytest

# Before anything imports torch. One thread: results do not depend on the number of cores, and two test processes do not
# fight over them. No hub: a test that would download says so at once.
os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", NO_COLOR="1")
# A test that calls the command line in this process would set it, and leave it so.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
for _name in [name for name in os.environ if name.startswith("TRAINWRIGHT_")]:
    del os.environ[_name]
# What is measured of this machine is kept for the session, not in the user's home; the user's own prices are not seen.
_HOME = tempfile.TemporaryDirectory(prefix="trainwright-home-")
os.environ.update(TRAINWRIGHT_HOME=_HOME.name, XDG_DATA_HOME=f"{_HOME.name}/data")

# Processes under test would inherit what a shell that starts the tests in the background, or nohup, has ignored.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

# Ranks are forked from a process that has imported this: alone each would take five seconds of a processor for it.
multiprocessing.set_forkserver_preload(["trainwright.stages.train.ranks.world", "torch._dynamo"])

# No deadline: a busy machine is no defect. In CI the examples are the same each time: a red run can be repeated.
hypothesis.settings.register_profile("project", deadline=None, derandomize="CI" in os.environ, print_blob=True)
hypothesis.settings.load_profile("project")


def pytest_addoption(parser: pytest.Parser) -> None:
    """What ``make soak`` gives."""
    parser.addoption("--soak", action="store_true", help="run the tests marked soak too, which take hours")
    parser.addoption("--kills", type=int, default=50, help="how often soak kills a rank (default: 50)")


@pytest.fixture(scope="session")
def kills(request: pytest.FixtureRequest) -> int:
    """How often a soak test kills."""
    times: int = request.config.getoption("--kills")
    return times


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests marked ``soak`` unless they are asked for; skip those marked ``cuda`` where there is no GPU.

    torch is imported only when such a test was collected.
    """
    if not config.getoption("--soak"):
        long = [item for item in items if item.get_closest_marker("soak")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
    wanting = [item for item in items if item.get_closest_marker("cuda")]
    if not wanting:
        return
    import torch

    if not torch.cuda.is_available():
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU on this machine"))


@pytest.fixture(scope="module", autouse=True)
def _imported_is_no_garbage() -> None:
    """Leave what is imported out of the search for garbage: torch's objects alone take 0.2 s each time.

    Again where a training of an earlier module has put it back.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _no_network() -> Iterator[None]:
    """Refuse every connection that leaves this machine: tests bring their own data and servers."""

    def guarded(connect: Any) -> Any:
        def checked(self: socket.socket, address: Any) -> Any:
            if self.family in {socket.AF_INET, socket.AF_INET6} and not _is_local(address[0]):
                raise AssertionError(f"a test tried to reach {address[0]}:{address[1]}; tests use the loopback only")
            return connect(self, address)

        return checked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded(socket.socket.connect))
        patch.setattr(socket.socket, "connect_ex", guarded(socket.socket.connect_ex))
        yield


def _is_local(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"
