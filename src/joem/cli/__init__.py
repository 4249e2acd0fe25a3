"""The command line: thin, quick to start, errors on stderr, exit 0 (done), 1 (failed) or 2 (bad usage)."""

import gc
import inspect
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from joem import __version__, parallel
from joem.cli import comparing, completion, datasets, learning, scoring, using
from joem.cli.output import Incomplete
from joem.cli.parser import Command, Told, parse
from joem.errors import BadUsage, JoemError, ProcessLost, choose
from joem.io import is_lack_of_memory

COMMANDS: dict[str, Command] = {
    "quickstart": learning.quickstart,
    "train": learning.train,
    "evaluate": scoring.evaluate,
    "compare": comparing.compare,
    "compare-pictures": scoring.compare_pictures,
    "predict": using.predict,
    "tune": learning.tune,
    "sweep": scoring.sweep,
    "report": scoring.report,
    "reproduce": comparing.reproduce,
    "export": using.export,
    "import-checkpoint": using.import_checkpoint,
    "serve": using.serve,
    "data": datasets.data,
    "data prepare": datasets.prepare,
    "data import": datasets.import_masks,
    "completion": completion.completion,
}
"""Every command: a typed function whose docstring is its help."""

_OVERVIEW = """\
joem {version}: segment pictures into classes named by words, including classes nobody ever labelled.

usage: joem COMMAND [options]      joem COMMAND --help teaches each one

{commands}

Start here:   joem quickstart
Your photo:   joem predict photo.jpg --classes "person, puppy"
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:  # the process is ours: torch loads a tenth faster if nobody looks for garbage in what it keeps
        gc.set_threshold(50_000, 20, 20)
    # Before torch is loaded: threads that wait for each other spin for a moment, then sleep. To spin for long takes a
    # third of the time on busy cores, to sleep at once (OMP_WAIT_POLICY=PASSIVE) half of it on idle ones.
    os.environ.setdefault("GOMP_SPINCOUNT", "30000")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may hold what the terminal's encoding does not
    if not words or words[0] in {"-h", "--help", "--version"}:
        print(__version__ if words[:1] == ["--version"] else _overview().rstrip())
        return 0
    try:
        _run(words)
    except JoemError as error:
        # With another code than 0, a launcher would kill the first process before it has told why.
        told = parallel.is_first() or isinstance(error, ProcessLost)
        return _fail(error, 2 if isinstance(error, BadUsage) else 1) if told else 0
    except BrokenPipeError:  # whoever reads the output, `head` for instance, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, OSError) or is_lack_of_memory(error):
            return _fail(str(error) or "there is not enough memory", 1)
        raise
    except KeyboardInterrupt:
        return _fail("stopped", 130)
    finally:
        parallel.leave()
    return 0


def _run(words: Sequence[str]) -> None:
    name = " ".join(words[:2])
    if name not in COMMANDS:
        name = choose("command", words[0], COMMANDS)
    parsed = parse(name, COMMANDS[name], words[len(name.split()) :])
    if parsed is None:
        return
    arguments, as_json = parsed
    found = _tell(COMMANDS[name](**arguments), quiet=as_json)
    outcome = found if isinstance(found, Incomplete) else Incomplete(found)
    if as_json and outcome.found is not None and parallel.is_first():
        print(json.dumps(outcome.found, indent=2))
    if outcome.failure:
        raise JoemError(outcome.failure)


def _tell(told: Told, quiet: bool) -> Any:
    """Print what a command tells as it goes, and give what it returns."""
    try:
        while True:
            line = next(told)
            if not quiet and parallel.is_first():
                print(line, flush=True)
    except StopIteration as end:
        return end.value


def _fail(message: object, code: int) -> int:
    print(f"joem: {message}", file=sys.stderr)
    return code


def _overview() -> str:
    first_lines = {name: (inspect.getdoc(command) or "").partition("\n")[0] for name, command in COMMANDS.items()}
    commands = "\n".join(f"  {name:17} {about[0].lower()}{about[1:-1]}" for name, about in first_lines.items())
    return _OVERVIEW.format(version=__version__, commands=commands)
