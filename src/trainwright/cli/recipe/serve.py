"""Answer HTTP requests with the model, in OpenAI's protocol, until Ctrl-C or SIGTERM, which end it with code 0.

Serves the export of a recipe (made first where it is missing), or with --bundle any directory with a model: an export,
a trained artefact, a Llama or GPT-2 from Hugging Face. Where TRAINWRIGHT_API_KEY is set, clients have to send it.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.cli.arguments import add_recipe_step, load_recipe, located, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.cli.recipe.run import make
from trainwright.core.errors import RecipeError, TrainwrightError
from trainwright.core.registry import load

if TYPE_CHECKING:
    from trainwright.core.config.load import Loaded
    from trainwright.spec.recipe import Recipe
    from trainwright.spec.sections.serve import EngineSection, ServeSection

API_KEY = "TRAINWRIGHT_API_KEY"


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe_step(parser)
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="serve this directory instead of a recipe's model")
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on (default: the recipe's, or 127.0.0.1)")
    parser.add_argument("--port", type=int, metavar="N", help="port to listen on; 0 takes a free one (default: 8000)")
    parser.add_argument(
        "--model-name", metavar="NAME", help="name in /v1/models (default: the recipe's or directory's)"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        metavar="NAME",
        help="a name that requests may be addressed to, beside the address and localhost; repeatable, * allows all",
    )
    parser.add_argument(
        "--max-concurrent", type=int, metavar="N", help="requests generated at once (default: the recipe's, or 8)"
    )
    parser.add_argument(
        "--engine", metavar="NAME", help="what generates: torch, or package.module:function (default: the recipe's)"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    output = Output.of(args)
    _check(args)
    api_key = os.environ.get(API_KEY) or None
    loaded = None if args.bundle else load_recipe(args)
    with _placed(args, loaded):
        directory, name, section = _from_bundle(args) if loaded is None else _from_recipe(args, output, loaded)
        # By name: the command line must not load torch to print its help.
        open_server = load("trainwright.stages.serve.foreground:open_server", kind="server")
        server = open_server(directory, section, model_name=name, api_key=api_key)
    if not _is_loopback(section.host) and api_key is None:
        output.note(f"warning: {section.host} is reachable from other machines and no key is asked for; set {API_KEY}")
    _announce(output, url=server.url, model=name, with_key=api_key is not None)
    try:
        server.run()
    except KeyboardInterrupt:
        output.note("stopped")
    return 0


def _check(args: argparse.Namespace) -> None:
    """Refuses what can be known before a recipe's model is made or a bundle is loaded."""
    if args.port is not None and not 0 <= args.port <= 65535:
        raise RecipeError("no such port", where="--port", seen=args.port, expected="0 to 65535")
    if args.max_concurrent is not None and args.max_concurrent < 1:
        raise RecipeError("must be at least 1", field="max_concurrent", seen=args.max_concurrent)
    # Recipes bring pydantic, which --help must not wait for.
    from trainwright.spec.sections.serve import host_alone, host_or_any

    hosts = [] if args.host is None else [("--host", args.host, host_alone)]
    for option, host, check in (*hosts, *(("--allow-host", name, host_or_any) for name in args.allow_host or ())):
        try:
            check(host)
        except RecipeError as error:
            raise error.at(option) from error
    if args.engine is not None:
        _engine(args.engine)


def _engine(name: str) -> EngineSection:
    """Returns the engine of this name with the defaults of its keys."""
    # Recipes bring pydantic, which --help must not wait for.
    from pydantic import ValidationError

    from trainwright.spec.sections.serve import ENGINE, ServeSection

    for problem in ENGINE.problems(name, where="--engine"):
        raise problem
    try:
        return ServeSection.model_validate({"engine": name}).engine
    except ValidationError as error:
        raise RecipeError(
            "this engine has keys without defaults",
            where="--engine",
            seen=name,
            fix="name it in a recipe, in serve.engine",
        ) from error


@contextmanager
def _placed(args: argparse.Namespace, loaded: Loaded[Recipe] | None) -> Iterator[None]:
    """Says of a problem with a key of the section which option, or which line of the recipe, could change it.

    Raises:
        TrainwrightError: the problem, with its place.
    """
    try:
        yield
    except TrainwrightError as error:
        section, _, key = (error.where or "").partition(".")
        if section != "serve":
            raise
        if loaded is None or vars(args).get(key) is not None:
            raise error.at(None).about(key) from error
        raise loaded.located(error) from error


def _with_options(section: ServeSection, args: argparse.Namespace) -> ServeSection:
    """Returns the section with the command line's options laid over it."""
    options = {
        "host": args.host,
        "port": args.port,
        "engine": args.engine and _engine(args.engine),
        "allowed_hosts": args.allow_host and tuple(args.allow_host),
        "max_concurrent": args.max_concurrent,
    }
    return section.model_copy(update={key: value for key, value in options.items() if value is not None})


def _from_recipe(args: argparse.Namespace, output: Output, loaded: Loaded[Recipe]) -> tuple[Path, str, ServeSection]:
    # The pipeline brings pydantic and NumPy, which --help must not wait for.
    from trainwright.artifact.bundle import SERVED, served_problems
    from trainwright.pipeline.runner import find
    from trainwright.pipeline.steps import named, steps, with_trained_model

    recipe = loaded.value
    # What is there is served as it is: nothing is written, so that a workspace may be read-only.
    with located(loaded):
        step = named(recipe, stage="export", step=args.step)
        for problem in served_problems(step.recipe.export.names):
            raise problem
        exported = find(recipe, root=workspace_of(args, name=recipe.name), upto=step.name).get(step.name)
    section = _with_options(recipe.serve, args)
    if exported is None:
        # Hours of training end in no cache that memory cannot hold, and no address that cannot be listened on.
        served = with_trained_model(step, steps(recipe)).model_copy(update={"serve": section})
        for problem in load("trainwright.stages.serve.check:memory_problems", kind="server")(served):
            raise problem
        load("trainwright.stages.serve.server:listen", kind="server")(section.host, section.port).close()
        exported = make(args, output, stage="export", loaded=loaded)
    return exported.path / SERVED, args.model_name or recipe.serve.model_name or recipe.name, section


def _from_bundle(args: argparse.Namespace) -> tuple[Path, str, ServeSection]:
    from trainwright.spec.sections.serve import ServeSection

    if args.inputs or args.preset:
        raise RecipeError("a recipe and --bundle exclude each other", where="--bundle", seen=args.bundle)
    return args.bundle, args.model_name or args.bundle.resolve().name, _with_options(ServeSection(), args)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _announce(output: Output, *, url: str, model: str, with_key: bool) -> None:
    key = f' -H "Authorization: Bearer ${API_KEY}"' if with_key else ""
    body = shlex.quote(json.dumps({"model": model, "prompt": "def add(a, b):", "max_tokens": 32}))
    example = f"curl {url}/v1/completions{key} -H 'Content-Type: application/json' -d {body}"
    payload: dict[str, Any] = {"url": url, "model": model, "example": example}

    def text() -> None:
        output.line(f"serving {model} at {url}/v1 (Ctrl-C stops)")
        output.verbatim(f"  {example}")

    output.result(payload, text)
    output.stdout.flush()
