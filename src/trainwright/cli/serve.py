"""Answer HTTP requests with the model, in OpenAI's protocol, until Ctrl-C.

Serves the export of a recipe (made first where it is missing), or with --bundle any directory with a model: an export,
a trained artefact, a Llama or GPT-2 from Hugging Face. Where TRAINWRIGHT_API_KEY is set, clients have to send it.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwright.cli.arguments import add_recipe, add_workspace, load_recipe, workspace_of
from trainwright.cli.output import Output
from trainwright.cli.parser import CommandParser
from trainwright.core.errors import RecipeError
from trainwright.core.registry import load

if TYPE_CHECKING:
    from trainwright.spec.recipe import ServeSection

API_KEY = "TRAINWRIGHT_API_KEY"


def configure(parser: CommandParser) -> None:
    """Add the command's arguments."""
    add_recipe(parser)
    add_workspace(parser)
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="serve this directory instead of a recipe's model")
    parser.add_argument("--host", metavar="ADDRESS", help="address to listen on (default: the recipe's, or 127.0.0.1)")
    parser.add_argument("--port", type=int, metavar="N", help="port to listen on; 0 takes a free one (default: 8000)")
    parser.add_argument(
        "--model-name", metavar="NAME", help="name in /v1/models (default: the recipe's or directory's)"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    output = Output.of(args)
    directory, name, section = _from_bundle(args) if args.bundle else _from_recipe(args, output)
    host, port = args.host or section.host, section.port if args.port is None else args.port
    if not 0 <= port <= 65535:
        raise RecipeError("no such port", where="--port", seen=port, expected="0 to 65535")
    api_key = os.environ.get(API_KEY) or None
    # By name: the command line must not load torch to print its help.
    server = load("trainwright.stages.serve.foreground:open_server", kind="server")(
        directory, model_name=name, host=host, port=port, api_key=api_key,
        max_concurrent=section.max_concurrent, max_waiting=section.max_waiting,
    )  # fmt: skip
    if not _is_loopback(host) and api_key is None:
        output.note(f"warning: {host} is reachable from other machines and no key is asked for; set {API_KEY}")
    _announce(output, url=server.url, model=name, with_key=api_key is not None)
    try:
        server.run()
    except KeyboardInterrupt:
        output.note("stopped")
    return 0


def _from_recipe(args: argparse.Namespace, output: Output) -> tuple[Path, str, ServeSection]:
    # The pipeline brings pydantic and NumPy, which --help must not wait for.
    from trainwright.pipeline.runner import run as run_pipeline

    recipe = load_recipe(args).value
    with output.progress() as progress:
        root = workspace_of(args, name=recipe.name)
        made = run_pipeline(recipe, root=root, upto="export", listeners=(progress,))
    name = args.model_name or recipe.serve.model_name or recipe.name
    made["export"].verify()
    return made["export"].path / "huggingface", name, recipe.serve


def _from_bundle(args: argparse.Namespace) -> tuple[Path, str, ServeSection]:
    from trainwright.spec.recipe import ServeSection

    if args.inputs or args.preset:
        raise RecipeError("a recipe and --bundle exclude each other", where="--bundle", seen=args.bundle)
    return args.bundle, args.model_name or args.bundle.resolve().name, ServeSection()


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
        output.line(f"  {example}")

    output.result(payload, text)
    output.stdout.flush()
