"""The worked examples of docs/extend run as they stand, each page in a process and a folder of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "extend").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


# A process of its own for each page, split off from one that has loaded what takes the time.
EVERY_PAGE = """
import os, runpy, sys
import lightning_fabric, timm, torch

for folder in sys.argv[1:]:
    if os.fork() == 0:
        os.chdir(folder)
        os.dup2(os.open("errors", os.O_WRONLY | os.O_CREAT), 2)
        runpy.run_path("page.py", run_name="__main__")
        open("done", "w").close()
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of each page, in which its examples have run."""
    found = {page.stem: tmp_path_factory.mktemp(page.stem) for page in PAGES if blocks(page)}
    for page in PAGES:
        if page.stem in found:
            (found[page.stem] / "page.py").write_text("\n\n".join(blocks(page)), encoding="utf-8")
    command = [sys.executable, "-c", EVERY_PAGE, *map(str, found.values())]
    subprocess.run(command, check=False, timeout=1200, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return found


def test_every_page_but_the_overview_has_an_example():
    assert {page.stem for page in PAGES if blocks(page)} == {page.stem for page in PAGES} - {"index"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [page.stem for page in PAGES if blocks(page)])
def test_an_example_runs(name, folders):
    assert (folders[name] / "done").exists(), (folders[name] / "errors").read_text()[-3000:]
