"""Print a completion script: commands, options, recipe keys (``train.op<TAB>``), their allowed values, recipe files.

bash:  trainwright completion bash > ~/.local/share/bash-completion/completions/trainwright
zsh:   trainwright completion zsh > "${fpath[1]}/_trainwright"
fish:  trainwright completion fish > ~/.config/fish/completions/trainwright.fish

The script holds all words, so that pressing TAB starts no Python. Print it again after an upgrade.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainwright.cli.output import Output
from trainwright.pipeline.presets import presets

if TYPE_CHECKING:
    import argparse

    from trainwright.cli.parser import CommandParser
    from trainwright.cli.shell.surface import Surface

RECIPE_INPUTS = "RECIPE|KEY=VALUE"


def configure(parser: CommandParser) -> None:
    """The shell."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell to complete in")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from trainwright.cli.shell.surface import surfaces

    output = Output.of(args)
    script = {"bash": bash, "zsh": zsh, "fish": fish}[args.shell](list(surfaces()), recipe_words())
    output.result({"shell": args.shell, "script": script}, lambda: output.verbatim(script.rstrip("\n")))
    return 0


def recipe_words() -> list[str]:
    """``key=`` for each key of a recipe that takes a value, and ``key=value`` for values that can be listed."""
    from trainwright.core.config.explain import keys
    from trainwright.spec.recipe import Recipe

    words = []
    for key in keys(Recipe):
        if not key.members:
            words.append(f"{key.key}=")
            words += [f"{key.key}={_word(value)}" for value in key.allowed]
    return words


def bash(commands: list[Surface], words: list[str]) -> str:
    """Returns the script for bash 3.2 and later."""
    arm = "    '{path}') words='{words}'; flags='{flags}'; recipe='{recipe}' ;;"
    return _filled(_BASH, commands, arm=arm, keys=words)


def zsh(commands: list[Surface], words: list[str]) -> str:
    """Returns the script for zsh 5, for a file on ``fpath`` or for ``source``."""
    arm = "    ({path}) plain=({words}); flags=({flags}); recipe='{recipe}' ;;"
    values = " ".join(word for word in words if not word.endswith("="))
    return _filled(_ZSH, commands, arm=arm, keys=[word for word in words if word.endswith("=")], values=values)


def _filled(template: str, commands: list[Surface], *, arm: str, keys: list[str], **values: str) -> str:
    """Returns a script from its template, with one ``arm`` for each command."""
    arms = (
        arm.format(path="/".join(each.words), words=_words(each), flags=_flags(each), recipe=_recipe(each))
        for each in commands
    )
    return template.format(
        commands=_names(commands),
        groups=_groups(commands),
        arms="\n".join(arms),
        presets=" ".join(presets()),
        keys=" ".join(keys),
        **values,
    )


def fish(commands: list[Surface], words: list[str]) -> str:
    """Returns the script for fish, which takes one declaration per word."""
    lines = ["complete -c trainwright -f"]
    names = _names(commands)
    for surface in commands:
        *before, name = surface.words
        if before:
            siblings = " ".join(next(group.subcommands for group in commands if group.words == tuple(before)))
            when = f"__fish_seen_subcommand_from {before[0]}; and not __fish_seen_subcommand_from {siblings}"
        else:
            when = f"not __fish_seen_subcommand_from {names}"
        lines.append(f"complete -c trainwright -n {_quoted(when)} -a {name} -d {_quoted(surface.help)}")
        inside = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in surface.words)
        for option in surface.options:
            flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
            value = " -r -F" if option.metavar else ""
            if "--preset" in option.flags:
                value = f" -x -a {_quoted(' '.join(presets()))}"
            lines.append(f"complete -c trainwright -n {_quoted(inside)} {flags}{value} -d {_quoted(option.help)}")
        choices = (choice for item in surface.positionals for choice in item.choices)
        lines += [f"complete -c trainwright -n {_quoted(inside)} -a {choice}" for choice in choices]
        if _recipe(surface):
            lines.append(f"complete -c trainwright -n {_quoted(inside)} -k -a '(__fish_complete_suffix .yaml)'")
            lines.append(f"complete -c trainwright -n {_quoted(inside)} -a {_quoted(' '.join(words))}")
    return "\n".join(lines) + "\n"


def _recipe(surface: Surface) -> str:
    return "yes" if any(item.metavar == RECIPE_INPUTS for item in surface.positionals) else ""


def _names(commands: list[Surface]) -> str:
    return " ".join(surface.words[0] for surface in commands if len(surface.words) == 1)


def _groups(commands: list[Surface]) -> str:
    return "|".join(surface.words[0] for surface in commands if surface.subcommands)


def _flags(surface: Surface) -> str:
    return " ".join(flag for option in surface.options for flag in option.flags)


def _words(surface: Surface) -> str:
    choices = [choice for item in surface.positionals for choice in item.choices]
    return " ".join((*surface.subcommands, *choices))


def _word(value: Any) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_BASH = """\
_trainwright() {{
  local current="${{COMP_LINE:0:COMP_POINT}}" command='' words='' flags='' recipe='' word head
  local -a typed
  read -ra typed <<< "$current"
  [[ "$current" == *[[:space:]] ]] && typed+=('')
  current="${{typed[${{#typed[@]}}-1]}}"
  COMPREPLY=()
  if (( ${{#typed[@]}} <= 2 )); then
    COMPREPLY=( $(compgen -W '{commands} --help --version' -- "$current") )
    return
  fi
  command="${{typed[1]}}"
  case "$command" in
    {groups}) (( ${{#typed[@]}} > 3 )) && command="$command/${{typed[2]}}" ;;
  esac
  case "$command" in
{arms}
  esac
  case "${{typed[${{#typed[@]}}-2]}}" in
    --preset) COMPREPLY=( $(compgen -W '{presets}' -- "$current") ); return ;;
    --workspace) COMPREPLY=( $(compgen -d -- "$current") ); return ;;
  esac
  if [[ "$current" == -* ]]; then
    COMPREPLY=( $(compgen -W "$flags" -- "$current") )
    return
  fi
  COMPREPLY=( $(compgen -W "$words" -- "$current") )
  if [[ -n "$recipe" ]]; then
    for word in {keys}; do
      [[ "$word" == "$current"* ]] || continue
      if [[ "$current" == *=* ]]; then
        [[ "$word" == *=?* ]] && COMPREPLY+=( "$word" )
      elif [[ "$word" == *= ]]; then
        COMPREPLY+=( "$word" )
      fi
    done
    while IFS= read -r word; do
      if [[ -d "$word" ]]; then COMPREPLY+=( "$word/" )
      elif [[ "$word" == *.yaml || "$word" == *.yml || "$word" == *.json ]]; then COMPREPLY+=( "$word" ); fi
    done < <(compgen -f -- "$current")
  fi
  # readline takes "=" for a border between words: give back only what stands behind it.
  if [[ "$current" == *=* && "$COMP_WORDBREAKS" == *=* ]]; then
    head="${{current%=*}}="
    COMPREPLY=( "${{COMPREPLY[@]#"$head"}}" )
  fi
  [[ ${{#COMPREPLY[@]}} -eq 1 && "${{COMPREPLY[0]}}" == *[=/] ]] && compopt -o nospace 2> /dev/null
  return 0
}}
complete -F _trainwright trainwright
"""

_ZSH = """\
#compdef trainwright
_trainwright() {{
  local command=$words[2] recipe
  local -a plain flags keys values
  if (( CURRENT == 2 )); then
    compadd -- {commands} --help --version
    return
  fi
  case $command in
    ({groups}) (( CURRENT > 3 )) && command="$command/$words[3]" ;;
  esac
  case $command in
{arms}
  esac
  case $words[CURRENT-1] in
    (--preset) compadd -- {presets}; return ;;
    (--workspace) _files -/; return ;;
  esac
  if [[ $PREFIX == -* ]]; then
    compadd -a -- flags
    return
  fi
  compadd -a -- plain
  if [[ -n $recipe ]]; then
    keys=({keys})
    values=({values})
    if [[ $PREFIX == *=* ]]; then
      compadd -a -- values
    else
      compadd -S '' -a -- keys
      _files -g '*.(yaml|yml|json)'
    fi
  fi
}}
if [[ $funcstack[1] == _trainwright ]]; then
  _trainwright "$@"
else
  compdef _trainwright trainwright
fi
"""
