"""The names that others rely on: whoever adds, renames or drops one does so knowingly.

After a wanted change, write the list again with: python tests/test_public_names.py --write
"""

import inspect
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import joem

SNAPSHOT = Path(__file__).parent / "golden" / "public_names.json"


def public_names() -> dict[str, list[str]]:
    """The public names of joem and of each of its public modules, sorted."""
    modules = [name for name in joem.__all__ if inspect.ismodule(getattr(joem, name))]
    return {"joem": sorted(joem.__all__)} | {f"joem.{name}": _names(f"joem.{name}") for name in sorted(modules)}


def _names(module_name: str) -> list[str]:
    """`__all__`; where a module has none, the functions and classes that it defines."""
    module = import_module(module_name)
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module_name and callable(value)
    )


def test_public_names_are_those_written_down():
    stored = json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    found = public_names()
    changes = []
    for module in sorted({*stored, *found}):
        before, now = set(stored.get(module, [])), set(found.get(module, []))
        changes += [f"{module}: {name} is new" for name in sorted(now - before)]
        changes += [f"{module}: {name} is gone" for name in sorted(before - now)]
    assert not changes, (
        "\n  ".join(["The public names changed:", *changes])
        + "\nIf that is wanted: python tests/test_public_names.py --write"
    )


def test_every_public_name_is_there():
    for module, names in public_names().items():
        missing = [name for name in names if not hasattr(import_module(module), name)]
        assert not missing, f"{module}.__all__ names what {module} does not have: {missing}"


def test_importing_joem_imports_neither_torch_nor_its_rooms():
    heavy = "'torch', 'numpy', 'joem.data'"
    loaded = f"import sys, joem; dir(joem); joem.Segmenter; print(*[name for name in ({heavy}) if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", loaded], check=True, capture_output=True, text=True).stdout
    assert found.split() == []


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    SNAPSHOT.write_text(json.dumps(public_names(), indent=2) + "\n", encoding="utf-8")
    print(f"Wrote {SNAPSHOT}")
