"""The page in Chromium: how long until something is painted, until the first answer, and until a new word is shown.

Starts `joem serve` itself and opens the page anew so many times. To compare with another version of joem, give the
folder of its sources:

    python benchmarks/page.py
    git worktree add /tmp/old HEAD && python benchmarks/page.py --source /tmp/old/src
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

from playwright.sync_api import sync_playwright

WORD = "grass"


def measure(page, address):
    """Milliseconds of one visit, by what was waited for."""
    page.goto(address)
    # An answer is shown when its share of the picture is, which both the old and the new page write into the list.
    page.locator("#chips .area").filter(has_text="%").first.wait_for()
    page.locator("#stage[aria-busy=false]").wait_for()
    first = page.evaluate("performance.now()")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    page.locator("#samples img[src]").nth(3).wait_for()
    page.locator("#words").fill(WORD)
    start = page.evaluate("performance.now()")
    page.locator("#words").press("Enter")
    page.locator(f"#chips li[data-name='{WORD}']").wait_for()
    page.locator("#stage[aria-busy=false]").wait_for()
    return {"first paint": paint, "first answer": first, "new word": page.evaluate("performance.now()") - start}


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", help="folder of joem's sources; those that are installed if not given")
    parser.add_argument("--visits", type=int, default=7)
    options = parser.parse_args()
    environment = {**os.environ, **({"PYTHONPATH": options.source} if options.source else {})}
    command = [sys.executable, "-m", "joem", "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as service:
        try:
            address = json.loads(service.stdout.readline())["address"]
            with sync_playwright() as playwright:
                path = shutil.which("chromium") or shutil.which("google-chrome")
                browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
                found = []
                for _ in range(options.visits):
                    context = browser.new_context(viewport={"width": 1280, "height": 900})
                    found.append(measure(context.new_page(), address))
                    context.close()
                browser.close()
        finally:
            service.terminate()
    print("ms              first visit    median of the others")
    for name in found[0]:
        later = statistics.median(visit[name] for visit in found[1:])
        print(f"{name:14}  {found[0][name]:11.0f}  {later:22.0f}")


if __name__ == "__main__":
    main()
