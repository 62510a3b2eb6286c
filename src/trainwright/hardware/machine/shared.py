"""The measurements of a machine, kept once for all workspaces of a user.

``<home>/machines/<digest of the machine>/probes-<format>.json``; the home is ``$TRAINWRIGHT_HOME``, else
``$XDG_STATE_HOME/trainwright``, else ``~/.local/state/trainwright``. The digest changes when a measurement would, so
that machines that share a home do not share measurements.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from trainwright.artifact.store import write_atomically
from trainwright.core.errors import DataError
from trainwright.core.frozen import dataclass
from trainwright.core.records import from_json, to_json
from trainwright.hardware.machine.facts import gather, machine_digest
from trainwright.hardware.machine.probes import Probes
from trainwright.hardware.machine.record import Machine

FORMAT = 4
FILE = f"probes-{FORMAT}.json"
HOME = "TRAINWRIGHT_HOME"
_DIGITS = 12


def home(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the folder of a user's state; it need not exist."""
    if environ.get(HOME):
        return Path(environ[HOME])
    state = environ.get("XDG_STATE_HOME", "")
    # The XDG specification has relative paths ignored.
    base = Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state"
    return base / "trainwright"


@dataclass(frozen=True, slots=True)
class SharedProbes:
    """The measurements of one machine in one folder."""

    folder: Path

    @property
    def path(self) -> Path:
        """Returns the file that they are or will be in."""
        return self.folder / FILE

    @property
    def _lock(self) -> Path:
        return self.folder / ".lock"

    def read(self) -> Probes | None:
        """Returns the measurements, or None where there are none.

        Raises:
            DataError: the file is damaged.
        """
        try:
            record = json.loads(self.path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            fix = "delete it, or measure again: trainwright doctor --fresh"
            raise DataError(
                "the machine's measurements cannot be read", where=self.path, seen=str(error), fix=fix
            ) from error
        return from_json(Probes, record, where=str(self.path))

    def writable(self) -> bool:
        """Returns whether the folder, made where it is absent, takes a file."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.touch()
        except OSError:  # a home that is absent, read-only or full is no home
            return False
        return os.access(self.folder, os.W_OK)

    def write(self, probes: Probes) -> None:
        """Replaces the measurements; a reader sees the old ones or the new ones."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, probes_text(probes))

    @contextmanager
    def lock(self, *, waiting: Callable[[], None]) -> Iterator[None]:
        """Lets one process at a time measure; calls ``waiting`` where another one does."""
        with self._lock.open("w") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(stream, fcntl.LOCK_EX)
            yield


def probes_text(probes: Probes) -> bytes:
    """Returns the measurements as UTF-8 JSON."""
    return json.dumps(to_json(probes), indent=1, ensure_ascii=False).encode() + b"\n"


def shared_probes(*, fallback: Path | None = None) -> SharedProbes | None:
    """Returns the place of this machine's measurements: in the home, or in ``fallback`` where it cannot be written.

    None where neither can be written.
    """
    return next((place for place in _places(fallback) if place.writable()), None)


def keep_probes(probes: Probes, *, fallback: Path | None = None) -> tuple[SharedProbes | None, OSError | None]:
    """Writes this machine's measurements where ``shared_probes`` would.

    A full disk shows only here, after the work, which must not be lost for it.

    Returns:
        Where they are now, None: nowhere; and the system's first refusal to write them.
    """
    refusal = None
    for place in _places(fallback):
        try:
            place.write(probes)
        except OSError as error:
            refusal = refusal or error
        else:
            return place, refusal
    return None, refusal


def kept_probes(*, fallback: Path | None = None) -> Probes | None:
    """Returns this machine's newest measurements in the home and ``fallback``, or None; writes nothing.

    Raises:
        DataError: a file is damaged, and the other place has no measurements.
    """
    kept, damage = list[Probes](), None
    for place in _places(fallback):
        try:
            probes = place.read()
        except DataError as error:
            damage = damage or error
        else:
            kept += [] if probes is None else [probes]
    if damage is not None and not kept:
        raise damage
    return max(kept, key=lambda probes: probes.measured_unix_s, default=None)


def kept_machine(root: Path) -> Machine:
    """Returns this machine's facts and kept measurements; writes nothing.

    Args:
        root: whose disk is looked at, and where measurements may be if the home has none.

    Raises:
        DataError: a file is damaged.
    """
    return Machine(facts=gather(root, watch_s=0.0), probes=kept_probes(fallback=root))


def _places(fallback: Path | None) -> Iterator[SharedProbes]:
    below = Path("machines", machine_digest()[:_DIGITS])
    return (SharedProbes(base / below) for base in (home(), fallback) if base is not None)
