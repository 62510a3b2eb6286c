"""Show, explain and check recipes: which value holds, where it comes from, what a key means."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from trainwright.cli.arguments import add_recipe, load_recipe, located, split_inputs
from trainwright.cli.output import Output

if TYPE_CHECKING:
    import argparse

    from trainwright.cli.parser import CommandParser


def configure(parser: CommandParser) -> None:
    """Subcommands show, explain, schema and validate."""
    show = parser.add_subcommand("show", "print the recipe that results from all layers, as YAML")
    add_recipe(show)
    show.add_argument("--origin", action="store_true", help="say behind each value where it comes from")
    explain = parser.add_subcommand("explain", "say what a key means, its type, default and unit")
    explain.add_argument("key", nargs="?", metavar="KEY", help="for example train.duration; default: all sections")
    add_recipe(explain)
    parser.add_subcommand("schema", "print the JSON Schema of a recipe, for editors")
    validate = parser.add_subcommand("validate", "check a recipe and say everything that is wrong with it")
    add_recipe(validate)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    commands = {"show": _show, "explain": _explain, "schema": _schema, "validate": _validate}
    return commands[args.subcommand](args, Output.of(args))


def _show(args: argparse.Namespace, output: Output) -> int:
    from trainwright.render.recipe import yaml_lines

    loaded = load_recipe(args)
    recipe = loaded.value.model_dump(mode="json", by_alias=True)
    origins = {key: str(origin) for key, origin in loaded.origins.items()}

    def text() -> None:
        lines = list(yaml_lines(recipe))
        width = min(60, max(len(line) for line, _ in lines))
        for line, key in lines:
            origin = f"{line:<{width}}  # {origins[key]}" if args.origin and key in origins else line
            output.verbatim(origin)

    output.result({"recipe": recipe, "origins": origins}, text)
    return 0


def _explain(args: argparse.Namespace, output: Output) -> int:
    from trainwright.core.config.explain import explain
    from trainwright.spec.recipe import Recipe

    wanted = [args.key] if args.key else list(Recipe.model_fields)
    # A recipe names its plug-ins, and they declare keys.
    written = load_recipe(args).tree if args.inputs or args.preset else None
    explanations = [explain(Recipe, key, written) for key in wanted]

    def text() -> None:
        for index, explanation in enumerate(explanations):
            if index:
                output.line()
            output.heading(explanation.key)
            for line in explanation.lines()[1:]:
                output.line(line)

    output.result({"keys": explanations}, text)
    return 0


def _schema(_args: argparse.Namespace, output: Output) -> int:
    from trainwright.core.config.explain import schema
    from trainwright.spec.recipe import Recipe

    described = schema(Recipe)
    output.result(
        {"json_schema": described}, lambda: output.verbatim(json.dumps(described, indent=2, ensure_ascii=False))
    )
    return 0


def _validate(args: argparse.Namespace, output: Output) -> int:
    from trainwright.pipeline.preflight import check
    from trainwright.pipeline.steps import steps

    loaded = load_recipe(args)
    with located(loaded):
        line = steps(loaded.value)
        check(line, line, {})
    files = [str(path) for path in split_inputs(args.inputs)[0]] or [f"preset {args.preset}"]
    output.result({"valid": True, "files": files}, lambda: output.line(f"{', '.join(files)}: valid"))
    return 0
