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


def test_every_page_but_the_overview_has_an_example():
    assert {page.stem for page in PAGES if blocks(page)} == {page.stem for page in PAGES} - {"index"}


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_an_example_runs(page, tmp_path):
    (tmp_path / "page.py").write_text("\n\n".join(blocks(page)), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
