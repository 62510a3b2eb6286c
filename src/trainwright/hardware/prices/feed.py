"""Refreshes the user's price lists from SkyPilot's public catalogue, or from files of its form."""

from __future__ import annotations

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwright.core.errors import DataError, MachineError, RecipeError, TrainwrightError
from trainwright.core.frozen import dataclass
from trainwright.core.paths import regular
from trainwright.hardware.prices import snapshot
from trainwright.hardware.prices.clouds import Cloud, clouds
from trainwright.hardware.prices.price_list import checked
from trainwright.hardware.prices.skypilot import read

PUBLIC = "https://raw.githubusercontent.com/skypilot-org/skypilot-catalog/master/catalogs/v9"
"""SkyPilot's catalogue: a folder for each cloud, ``vms.csv`` in it."""
PREVIOUS = PUBLIC.replace("/v9", "/v8")
"""Where clouds stand whose list has not moved to the newest form of the catalogue."""
TIMEOUT_S = 20.0
MAX_BYTES = 64 << 20
"""The largest list is 3 MB; more is not one."""


class _NoAnswer(MachineError):
    """The host cannot be reached, or breaks off."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Updated:
    """The result of updating one cloud's list: rows kept, rows refused by reason, or the error in its stead."""

    cloud: str
    source: str
    offers: int = 0
    devices: int = 0
    refused: Mapping[str, int] | None = None
    path: Path | None = None
    error: TrainwrightError | None = None


def update(origins: Sequence[str], wanted: Sequence[Cloud], *, today: str) -> tuple[Updated, ...]:
    """Fetch price lists, check them, and put them into the user's folder.

    Args:
        origins: files, folders or addresses; a folder and an address without ``.csv`` hold ``<cloud>/vms.csv``.
            Empty: SkyPilot's public catalogue.
        wanted: only these clouds; empty: all that have a feed. A file of another layout needs exactly one.
        today: the date of the prices, ISO.

    Raises:
        RecipeError: a file whose cloud is not known.
        MachineError: the user's folder cannot be written.
    """
    plan: dict[tuple[str, str], Cloud] = {}
    for origin in origins or (PUBLIC,):
        plan.update({(each.slug, source): each for each, source in _sources(origin, wanted)})
    results: list[Updated] = []
    silent: dict[str, MachineError] = {}
    for (_, source), each in plan.items():
        host = urllib.parse.urlsplit(source).netloc if _is_address(source) else ""
        if host in silent:
            # One wait for a host that does not answer, not one for each of its files.
            results.append(Updated(cloud=each.title, source=source, error=silent[host]))
            continue
        result = _update(each, source, today)
        if source.startswith(PUBLIC) and result.error is not None and not isinstance(result.error, _NoAnswer):
            result = _update(each, source.replace(PUBLIC, PREVIOUS), today)
        results.append(result)
        if isinstance(error := results[-1].error, _NoAnswer):
            silent[host] = error
    return tuple(results)


def _sources(origin: str, wanted: Sequence[Cloud]) -> list[tuple[Cloud, str]]:
    """Returns each cloud that ``origin`` holds, with its file or address."""
    base = origin.rstrip("/")
    if not _is_address(base) and (not base or not Path(base).exists()):
        raise RecipeError(
            "no such price list",
            field="origins",
            seen=repr(origin),
            expected="a CSV file, a folder or an https address",
        )
    if base.lower().endswith(".csv"):
        return [(_owner(base, wanted), base)]
    if unfed := [each.title for each in wanted if not each.feed]:
        raise RecipeError(
            "in no public price list",
            field="clouds",
            seen=", ".join(unfed),
            expected="a cloud with a list",
            fix="give your own file: `origins` prices.csv `clouds` NAME",
        )
    fed = [each for each in wanted or clouds() if each.feed]
    if _is_address(base):
        return [(each, f"{base}/{each.feed}/vms.csv") for each in fed]
    return [(each, str(path)) for each in fed if (path := Path(base, str(each.feed), "vms.csv")).is_file()]


def _owner(source: str, wanted: Sequence[Cloud]) -> Cloud:
    if len(wanted) == 1:
        return wanted[0]
    parts = source.replace("\\", "/").lower().split("/")
    folder, stem = (parts[-2] if len(parts) > 1 else ""), parts[-1].removesuffix(".csv")
    for each in clouds():
        if each.feed and each.feed in {folder, stem}:
            return each
    raise RecipeError(
        "whose prices are these?",
        field="origins",
        seen=repr(source),
        expected="a path such as aws/vms.csv or aws.csv",
        fix="name the cloud: `clouds` aws",
    )


def _update(owner: Cloud, source: str, today: str) -> Updated:
    try:
        text = _download(source) if _is_address(source) else _local(source)
        listed = read(text, owner, source=source, as_of=today)
    except (MachineError, DataError) as error:
        return Updated(cloud=owner.title, source=source, error=error)
    sound = checked(listed.rows)
    refused = dict(listed.refused)
    for reason, count in sound.refused.items():
        refused[reason] = refused.get(reason, 0) + count
    offers = sum(map(len, sound.prices.values()))
    if not offers:
        nothing = DataError("no believable price in it", where=source, seen=_counted(refused))
        return Updated(cloud=owner.title, source=source, refused=refused, error=nothing)
    path = snapshot.write(owner.slug, listed.rows)
    return Updated(
        cloud=owner.title, source=source, offers=offers, devices=len(sound.prices), refused=refused, path=path
    )


def _local(path: str) -> str:
    try:
        return regular(Path(path)).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise MachineError("cannot read a price list", where=path, seen=error.strerror) from error
    except UnicodeDecodeError as error:
        raise DataError("a price list that is not UTF-8", where=path) from error


def _download(address: str) -> str:
    """Returns the text at an address.

    Raises:
        MachineError: no network, no answer, an error of the server.
        DataError: too long, or not UTF-8.
    """
    request = urllib.request.Request(address, headers={"User-Agent": "trainwright"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            data: bytes = answer.read(MAX_BYTES + 1)
            announced = int(answer.headers.get("Content-Length") or len(data))
    except urllib.error.HTTPError as error:
        with error:
            seen = f"HTTP {error.code} {error.reason}"
        raise MachineError("cannot fetch a price list", where=address, seen=seen) from error
    except urllib.error.URLError as error:
        raise _NoAnswer("cannot fetch a price list", where=address, seen=error.reason) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _NoAnswer("cannot fetch a price list", where=address, seen=error) from error
    if len(data) > MAX_BYTES:
        raise DataError("a price list that is too long", where=address, expected=f"at most {MAX_BYTES >> 20} MiB")
    if len(data) < announced:
        seen = f"{len(data):,} of {announced:,} bytes"
        raise MachineError("a price list that was cut off", where=address, seen=seen, fix="fetch it again")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError("a price list that is not UTF-8", where=address) from error


def _is_address(text: str) -> bool:
    return text.lower().startswith(("https://", "http://"))


def _counted(refused: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {reason}" for reason, count in refused.items()) or "no row with an accelerator"
