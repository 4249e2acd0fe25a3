"""Completion in shells: one script with all commands, their options and the values that are known."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Literal

from joem.cli.parser import Choices, Command, Told, choices

_SCRIPT = """\
{start}_joem() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  local command="${{COMP_WORDS[1]}}" words="" options=""
  if [ "$COMP_CWORD" -gt 2 ]; then
    case "$command ${{COMP_WORDS[2]}}" in
      {pairs}) command="$command ${{COMP_WORDS[2]}}" ;;
    esac
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    words={commands}
  else
    case "$command $previous" in
{values}
      *) case "$command" in
{options}
      esac ;;
    esac
    case "$current" in -*) words="$options" ;; esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _joem joem"""

_STARTS = {"bash": "", "zsh": "autoload -U +X bashcompinit && bashcompinit\n"}


def completion(shell: Literal["bash", "zsh"]) -> Told:
    """Print a script that lets a shell complete commands and options.

    Put it where the shell reads it, once: joem completion bash >> ~/.bashrc, or joem completion zsh >> ~/.zshrc.

    Example:
        joem completion bash >> ~/.bashrc

    Args:
        shell: bash or zsh.
    """
    from joem.cli import COMMANDS

    text = script(COMMANDS, _STARTS[shell])
    yield text
    return {"script": text}


def script(commands: Mapping[str, Command], start: str = "") -> str:
    """The script for these commands; `start` stands before it."""
    found = {name: choices(command) for name, command in commands.items()}
    second = [name.partition(" ") for name in commands if " " in name]
    for first, _, word in second:
        found[first] = found[first]._replace(words=(*found[first].words, word))
    return _SCRIPT.format(
        start=start,
        pairs="|".join(f'"{name}"' for name in commands if " " in name),
        commands=shlex.quote(" ".join(name for name in commands if " " not in name)),
        values="\n".join(_values(found)),
        options="\n".join(_options(name, known) for name, known in found.items()),
    )


def _options(name: str, known: Choices) -> str:
    words, options = (shlex.quote(" ".join(each)) for each in (known.words, known.options))
    return f'        "{name}") words={words} options={options} ;;'


def _values(found: Mapping[str, Choices]) -> Iterator[str]:
    for name, known in found.items():
        for option, values in known.options.items():
            if values:
                yield f'      "{name} {option}") words={shlex.quote(" ".join(values))} ;;'
