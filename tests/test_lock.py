"""requirements.lock against constraints.txt, pyproject.toml and what is installed."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(text: str) -> dict[str, str]:
    """package -> version, of lines such as `torch==2.15.0 ; sys_platform == 'linux' \\`."""
    found = re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {plain(name): number for name, number in found}


def lock() -> str:
    return (ROOT / "requirements.lock").read_text(encoding="utf-8")


def test_the_lock_has_the_versions_of_the_constraints():
    tested = pinned((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    locked = pinned(lock())
    assert locked
    other = {name: (number, tested[name]) for name, number in locked.items() if tested.get(name, number) != number}
    assert not other, "run make lock"


def test_the_lock_has_what_is_installed_here():
    for name, number in pinned(lock()).items():
        try:
            assert version(name) == number, name
        except PackageNotFoundError:  # what other systems need, or an extra that is not installed
            continue


def test_the_lock_has_all_that_is_needed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    needed = [
        *project["project"]["dependencies"],
        *extras["serve"],
        *extras["onnx"],
        *project["build-system"]["requires"],
    ]
    locked = pinned(lock())
    for wanted in map(Requirement, needed):
        assert plain(wanted.name) in locked, f"{wanted.name}: run make lock"
        assert wanted.specifier.contains(locked[plain(wanted.name)]), f"{wanted}: run make lock"


def test_every_package_has_hashes_and_no_address():
    entries = re.split(r"\n(?=\S)", lock().strip())
    packages = [entry for entry in entries if not entry.startswith("#")]
    assert len(packages) == len(pinned(lock()))
    for entry in packages:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
    assert "://" not in lock()
