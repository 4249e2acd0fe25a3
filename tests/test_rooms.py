"""The house of docs/concepts/package.md: who may import whom, no shared file names, no long files and functions.

A room is a module or a package directly under `joem`. Imports inside functions count; those under `if TYPE_CHECKING:`
do not.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import joem

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "src" / "joem"
SOURCES = sorted(PACKAGE.rglob("*.py"))

ORDER = [
    *("errors", "extras", "plain_yaml", "checksums", "vocabulary", "protocols", "settings"),
    *(
        "io",
        "locking",
        "picture_files",
        "model_folder",
        "model_description",
        "parallel",
        "progress",
        "jobs",
        "shards",
        "examples",
    ),
    *("semantics", "data", "pictures", "models", "losses", "decision", "scores"),
    *("methods", "recipe", "seen_before", "model", "engine", "calibration"),
    *("overlay", "refinement", "exchange", "parquet_files", "saving", "result", "tiles", "asking", "classes"),
    *("hub", "windowed", "scene", "segmenter", "bands", "onnx_graph", "onnx_int8", "onnx"),
    *("prediction", "cluster"),
    *("report", "studies", "web", "cli"),
]
"""From top to bottom: a room imports only from rooms before it."""

KNOW_EACH_OTHER = {frozenset({"segmenter", "onnx"})}
"""Pairs of rooms that may import each other: an exported model is opened and held like any other."""

EXCEPTIONS: dict[tuple[str, str], str] = {}
"""Other imports against the order, as (file, room), each with its reason."""

LONGEST_FILE, LONGEST_FUNCTION = 400, 50
EXCUSE = "Long because"


class Import(NamedTuple):
    """One name that a file imports from joem: `from joem.data import VOC as V` has module joem.data and name VOC."""

    line: int
    module: str
    name: str | None
    bound: str


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def code(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING:`."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from code(other)
        else:
            yield from code(child)


def imports(path: Path) -> Iterator[Import]:
    for node in code(parse(path)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{shown(path)}:{node.lineno}: write the import with its full name, not with dots."
            if (node.module or "").split(".")[0] == "joem":
                for each in node.names:
                    yield Import(node.lineno, node.module, each.name, each.asname or each.name)
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name.split(".")[0] == "joem":
                    yield Import(node.lineno, each.name, None, each.asname or "joem")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_room(found: Import) -> str | None:
    """The room that an import reaches; None for joem itself."""
    if found.module != "joem":
        return found.module.split(".")[1]
    if found.name is None or found.name.startswith("__"):
        return None
    if (PACKAGE / found.name).is_dir() or (PACKAGE / f"{found.name}.py").is_file():
        return found.name
    return str(getattr(joem, found.name).__module__).split(".")[1]


def shown(path: Path) -> str:
    return str(path.relative_to(TESTS.parent))


def complain(title: str, lines: list[str]) -> None:
    assert not lines, f"{title}\n  " + "\n  ".join(lines)


def test_every_room_has_its_rank():
    found = {room_of(path) for path in SOURCES} - {"__init__", "__main__"}
    complain("Rooms that the order does not name:", sorted(found - set(ORDER)))
    complain("Rooms that the order names and that are not there:", sorted(set(ORDER) - found))


def test_a_room_imports_only_from_rooms_above_it():
    rank = {room: number for number, room in enumerate(ORDER)}
    wrong, used = [], set()
    for path in SOURCES:
        here = room_of(path)
        if here not in rank:  # the package itself and __main__ are below all; unknown rooms fail above
            continue
        for found in imports(path):
            there = imported_room(found)
            if there is None or there == here or rank.get(there, len(rank)) < rank[here]:
                continue
            if frozenset({here, there}) in KNOW_EACH_OTHER:
                continue
            exception = (str(path.relative_to(PACKAGE)), there)
            if exception in EXCEPTIONS:
                used.add(exception)
                continue
            wrong.append(f"{shown(path)}:{found.line}: {here} imports {there}, which is not above it")
    complain("Imports against the order of the rooms:", list(dict.fromkeys(wrong)))
    complain("Exceptions that nothing needs any more:", [str(each) for each in EXCEPTIONS.keys() - used])


def test_no_private_name_leaves_its_room():
    wrong = []
    for path in SOURCES:
        here, modules = room_of(path), {}
        for found in imports(path):
            there = imported_room(found)
            if there in {None, here}:
                continue
            parts = [*found.module.split("."), found.name or ""]
            if any(is_private(part) for part in parts):
                wrong.append(f"{shown(path)}:{found.line}: {'.'.join(parts)}")
            modules[found.bound] = there
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Attribute) and is_private(node.attr):
                root = node.value
                while isinstance(root, ast.Attribute):
                    root = root.value
                if isinstance(root, ast.Name) and root.id in modules:
                    wrong.append(f"{shown(path)}:{node.lineno}: {ast.unparse(node)}, of {modules[root.id]}")
    complain("Private names of other rooms:", wrong)


def is_private(name: str) -> bool:
    named_tuple = {"_asdict", "_fields", "_make", "_replace"}
    return name.startswith("_") and not name.endswith("__") and name not in named_tuple


def test_no_two_files_share_a_name():
    names = Counter(path.name for path in SOURCES)
    shared = [path for path in SOURCES if names[path.name] > 1 and not path.name.startswith("__")]
    complain("Files of one name:", [shown(path) for path in sorted(shared, key=lambda path: path.name)])
    tests = [path for path in sorted(TESTS.rglob("*.py")) if path.name != "__init__.py"]
    names = Counter(path.name for path in tests)  # pytest imports tests by their bare names
    complain("Test files of one name:", [shown(path) for path in tests if names[path.name] > 1])


@pytest.mark.parametrize("folder", [PACKAGE, TESTS], ids=["src", "tests"])
def test_no_file_is_long(folder):
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sorted(folder.rglob("*.py"))}
    long = [f"{shown(path)}: {length} lines" for path, length in lengths.items() if length > LONGEST_FILE]
    complain(f"Files over {LONGEST_FILE} lines:", long)


def test_no_function_is_long_without_a_reason():
    long = []
    for path in SOURCES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = code_length(node)
                excused = any(line.strip().startswith(EXCUSE) for line in (ast.get_docstring(node) or "").splitlines())
                if length > LONGEST_FUNCTION and not excused:
                    long.append(f"{shown(path)}:{node.lineno}: {node.name}, {length} lines")
    complain(f"Functions over {LONGEST_FUNCTION} lines, whose docstring has no line '{EXCUSE} ...':", long)


def code_length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines without the docstring, which in a command is the help and in a loss the equation."""
    text = node.body[0] if ast.get_docstring(node) is not None else None
    documentation = (text.end_lineno or 0) - text.lineno + 1 if text is not None else 0
    return (node.end_lineno or 0) - node.lineno + 1 - documentation
