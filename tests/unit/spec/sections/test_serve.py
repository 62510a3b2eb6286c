"""A host is an address or a name, and nothing beside it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from trainwright.spec.sections.serve import ServeSection

LABEL = "a" * 63


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "::1", "fe80::1%eth0", "localhost", "a-b.example.", "my_host", "10.example", f"{LABEL}.{LABEL}"],
)
def test_addresses_and_names_are_hosts(host) -> None:
    assert ServeSection(host=host).host == host


@pytest.mark.parametrize(
    "host",
    [
        "",
        " ",
        "localhost ",
        "127.0.0.1:8000",
        "localhost:8000",
        "[::1]",
        "[::1]:8000",
        "http://localhost",
        "a/b",
        "user@host",
        "a..b",
        ".a",
        "-a",
        "a-.b",
        "bücher.example",
        "999.1.1.1",
        "127.1",
        "127.0.0.1.",
        f"{LABEL}a",
        f"{LABEL}.{LABEL}.{LABEL}.{LABEL}",
    ],
)
def test_what_has_something_beside_it_is_none(host) -> None:
    with pytest.raises(ValidationError, match="not a host"):
        ServeSection(host=host)


def test_allowed_hosts_are_hosts_or_all() -> None:
    assert ServeSection(allowed_hosts=("a.example", "::1", "*")).allowed_hosts == ("a.example", "::1", "*")
    for name in ("a.example:443", "*.example", "https://a.example", ""):
        with pytest.raises(ValidationError, match="not a host"):
            ServeSection(allowed_hosts=(name,))
