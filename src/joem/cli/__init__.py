"""The command line: thin, quick to start, errors on stderr, exit 0 (done), 1 (failed) or 2 (bad usage)."""

import sys
from collections.abc import Callable, Sequence

from joem import __version__
from joem.cli import datasets, pictures, runs
from joem.errors import BadUsage, JoemError, choose

_OVERVIEW = """\
joem {version}: segment pictures into classes named by words, including classes nobody ever labelled.

usage: joem COMMAND [options]      joem COMMAND --help teaches each one

  quickstart  the whole job on generated pictures, in minutes, with a report to look at
  train       train a recipe on the classes you have masks for
  evaluate    score a trained model: seen, unseen, hIoU, per class
  compare     train and score every system of the field side by side, beside the published numbers
  predict     segment your own pictures with your own words
  tune        choose lambda, sigma and gamma on seen classes held out as if unseen
  sweep       the whole seen-unseen trade-off of every rule from one pass
  report      one HTML file that shows a run: scores, curves, classes, pictures
  reproduce   a table or figure of the paper, with the published values beside ours
  export      write a model as one ONNX file that runs without torch
  serve       a web page and a REST API on a model
  data        prepare the benchmarks, look at a dataset, list protocols and recipes

Start here:   joem quickstart
Your photo:   joem predict photo.jpg --classes "cow, grass, tractor"
"""

_COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    **runs.COMMANDS,
    **pictures.COMMANDS,
    **datasets.COMMANDS,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in {"-h", "--help"}:
        print(_OVERVIEW.format(version=__version__), end="")
        return 0
    if words[0] == "--version":
        print(__version__)
        return 0
    try:
        choose("command", words[0], _COMMANDS)
        _COMMANDS[words[0]](words[1:])
    except BadUsage as error:
        return _fail(error, 2)
    except (JoemError, OSError) as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    return 0


def _fail(message: object, code: int) -> int:
    print(f"joem: {message}", file=sys.stderr)
    return code
