"""The ``serve`` section of a recipe: address, limits and demonstration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, Field

from trainwright.core.config.by_name import ByName
from trainwright.core.errors import RecipeError
from trainwright.core.extension import Extension
from trainwright.core.plug_in import Called
from trainwright.spec.sections.base import NamedSection, Section

ENGINES: Mapping[str, str] = {"torch": "trainwright.model.generation.engine:open_engine"}
"""Functions from a model's directory and ``places`` to a ``trainwright.spec.generation.Generator``."""
ENGINE = Extension("engine", ENGINES, Called(arguments=("directory",), keywords=("places",)))

_NAME = re.compile(r"(?=.{1,253}\Z)\w([\w-]{0,61}\w)?(\.\w([\w-]{0,61}\w)?)*\.?", re.ASCII)


def host_alone(host: str) -> str:
    """Returns a host as it is.

    Raises:
        RecipeError: it is no IP address and no name, or has something beside it.
    """
    try:
        ip_address(host)
    except ValueError:
        numbers = host.replace(".", "").isdecimal()
        if numbers or not _NAME.fullmatch(host):
            wanted, fix = "an IP address or a name alone", "leave out port, scheme and brackets"
            fix = "an IPv4 address is four numbers from 0 to 255" if numbers else fix
            raise RecipeError("not a host", seen=repr(host), expected=wanted, fix=fix) from None
    return host


def host_or_any(host: str) -> str:
    """Returns the same, for a host or ``*``."""
    return host if host == "*" else host_alone(host)


class EngineSection(NamedSection):
    """What generates, with its keys."""

    name: Annotated[str, ENGINE] = Field("torch", description="torch, or package.module:function")


class ServeDemo(Section):
    """A question that `trainwright run` asks the served model over HTTP before it stops it."""

    prompt: str = Field(description="text to complete; a message, where the model has a chat template")
    max_tokens: int = Field(64, gt=0, description="longest answer")
    temperature: float = Field(0.0, ge=0, description="0 takes the likeliest token")
    seed: int = Field(0, description="seed of the sampling")


class ServeSection(Section):
    """The HTTP server."""

    model_name: str | None = Field(None, description="name in /v1/models; default: the recipe's name")
    host: Annotated[str, AfterValidator(host_alone)] = Field("127.0.0.1", description="address to listen on")
    port: int = Field(8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    max_concurrent: int = Field(8, gt=0, description="requests generated at once; more wait in line")
    max_waiting: int = Field(64, ge=0, description="requests waiting in line; more get status 429")
    allowed_hosts: tuple[Annotated[str, AfterValidator(host_or_any)], ...] = Field(
        (), description="names that requests may be addressed to, beside the address and localhost; * allows all"
    )
    engine: Annotated[EngineSection, ByName(ENGINE, EngineSection)] = Field(
        default_factory=EngineSection, description="what generates: a name, or a mapping of a name and its keys"
    )
    demo: ServeDemo | None = Field(None, description="a question asked by `trainwright run`")
