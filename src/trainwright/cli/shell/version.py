"""Print the versions of trainwright and of what it stands on, without loading any of it."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from trainwright import __version__
from trainwright.cli.output import Output

if TYPE_CHECKING:
    import argparse

    from trainwright.cli.parser import CommandParser

PACKAGES = ("torch", "numpy", "pydantic", "PyYAML", "tokenizers", "gigatoken", "pyarrow", "fsspec", "safetensors")


def configure(parser: CommandParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace) -> int:
    """Print versions; a package that is not installed is null."""
    output = Output.of(args)
    packages = {name: _installed(name) for name in PACKAGES}
    python = f"{platform.python_implementation()} {platform.python_version()}"
    facts = {"trainwright": __version__, "python": python, "platform": platform.platform()}

    def text() -> None:
        shown = {**facts, **packages}
        width = max(map(len, shown))
        for name, value in shown.items():
            output.line(f"{name:<{width}}  {value or 'not installed'}")

    output.result({**facts, "packages": packages}, text)
    return 0


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
