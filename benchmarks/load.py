"""Load on loopback: many clients, pictures of several sizes, bad requests among them, every answer checked.

Starts `joem serve` itself, with a cache so small that scenes are let go all the time, and stops it at the end.

    python benchmarks/load.py quickstart/model
"""

import argparse
import io
import random
import sys
import threading
import time
from collections import Counter, defaultdict

import httpx2 as httpx
import numpy as np
from PIL import Image

from _service import decide, serving
from joem import Segmenter
from joem.data import scenes

SIZES = ((64, 64), (128, 96), (200, 256), (512, 512))
CACHE = 20_000_000
PNG = {"Content-Type": "image/png"}


class Known:
    """A picture with requests and the labels that Python gives for them."""

    def __init__(self, segmenter, picture, requests):
        file = io.BytesIO()
        picture.save(file, "PNG")
        self.content, self.requests = file.getvalue(), requests
        scene = segmenter.encode(picture)
        self.labels = [scene.segment(**request).labels.numpy() for request in requests]
        self.key = None


class Log:
    """What all clients saw."""

    def __init__(self):
        self.seconds = defaultdict(list)
        self.wrong = []
        self.counts = Counter()
        self._lock = threading.Lock()

    def note(self, kind, seconds):
        """One answer took so long."""
        with self._lock:
            self.seconds[kind].append(seconds)

    def check(self, right, what):
        """Keep what went wrong."""
        if not right:
            with self._lock:
                self.wrong.append(what)


class Client(threading.Thread):
    """Asks until the time is over."""

    def __init__(self, number, address, pictures, until, log):
        super().__init__()
        self._random = random.Random(number)
        self._pictures, self._until, self._log = pictures, until, log
        self._http = httpx.Client(base_url=address, timeout=60)
        self._keys = {}

    def run(self):
        """One thing after another."""
        with self._http:
            while time.monotonic() < self._until:
                try:
                    self._random.choice((self._mask, self._mask, self._ranking, self._bad, self._health))()
                except httpx.HTTPError as error:
                    self._log.check(False, repr(error))

    def _ask(self, kind, method, path, **options):
        start = time.perf_counter()
        answer = self._http.request(method, path, **options)
        self._log.note(kind, time.perf_counter() - start)
        return answer

    def _scene(self, what, picture, request):
        """Ask about a picture; send it if the service does not have it (any more)."""
        for _ in range(50):
            if picture not in self._keys:
                sent = self._ask("picture", "POST", "/api/scenes", content=picture.content, headers=PNG)
                self._log.check(sent.status_code == 200, f"picture: {sent.status_code} {sent.text}")
                self._keys[picture] = sent.json()["scene"]
            answer = self._ask(what, "POST", f"/api/scenes/{self._keys[picture]}/{what}", json=request)
            if answer.status_code != 404:
                return answer
            self._log.counts["scenes sent again"] += 1
            del self._keys[picture]
        return answer

    def _pick(self):
        picture = self._random.choice(self._pictures)
        index = self._random.randrange(len(picture.requests))
        return picture, picture.requests[index], picture.labels[index]

    def _mask(self):
        picture, request, labels = self._pick()
        answer = self._scene("mask", picture, request)
        right = answer.status_code == 200 and np.array_equal(np.asarray(Image.open(io.BytesIO(answer.content))), labels)
        self._log.check(right, f"mask: {answer.status_code} for {request}")

    def _ranking(self):
        picture, request, labels = self._pick()
        answer = self._scene("ranking", picture, {key: request[key] for key in ("names", "rule")})
        value = request.get("sigma")
        right = answer.status_code == 200 and np.array_equal(decide(answer.content, request["rule"], value), labels)
        self._log.check(right, f"ranking: {answer.status_code} for {request}")

    def _bad(self):
        key = next(iter(self._keys.values()), "0" * 64)
        path, expected, options = self._random.choice(
            (
                ("/api/scenes", 415, {"content": b"no picture", "headers": PNG}),
                ("/api/scenes", 415, {"content": b"{}", "headers": {"Content-Type": "application/json"}}),
                ("/api/scenes", 400, {"content": self._pictures[0].content[:500], "headers": PNG}),
                ("/api/scenes", 413, {"content": bytes(10_000_001), "headers": PNG}),
                (f"/api/scenes/{'0' * 64}/mask", 404, {"json": {}}),
                (f"/api/scenes/{key}/mask", 422, {"json": {"sigma": 9}}),
                (f"/api/scenes/{key}/mask", 400, {"content": b"{", "headers": {"Content-Type": "application/json"}}),
            )
        )
        answer = self._ask("bad request", "POST", path, **options)
        self._log.check(answer.status_code == expected, f"bad request: {answer.status_code}, expected {expected}")

    def _health(self):
        answer = self._ask("health", "GET", "/health")
        self._log.check(answer.status_code == 200, f"health: {answer.status_code}")


def known_answers(segmenter):
    names = list(segmenter.vocabulary.names)
    requests = [
        {"names": names, "rule": "nn"},
        {"names": [*names, scenes.NEW_CLASS], "rule": "ac", "sigma": 0.8},
        {"names": [names[0], "red circle", "orange horse"], "rule": "ac", "sigma": 0.95},
    ]
    pictures = []
    for width, height in SIZES:
        drawn = scenes.open_split("demo", 3, size=max(width, height))
        images = (Image.fromarray(drawn[i].image.permute(1, 2, 0).numpy()) for i in range(3))
        pictures += [Known(segmenter, image.crop((0, 0, width, height)), requests) for image in images]
    return pictures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    pictures = known_answers(Segmenter.load(options.model))
    with serving(options.model, "--limits.cache_bytes", str(CACHE)) as service:
        log, memory = Log(), [service.resident()]
        until = time.monotonic() + options.seconds
        clients = [Client(number, service.address, pictures, until, log) for number in range(options.clients)]
        for client in clients:
            client.start()
        while any(client.is_alive() for client in clients):
            memory.append(service.resident())
            time.sleep(0.25)
        cache = service.cached()
    tell(options, log, memory, cache, service.exit_code)
    sys.exit(bool(log.wrong or service.exit_code))


def tell(options, log, memory, cache, stopped):
    total = sum(map(len, log.seconds.values()))
    print(
        f"{options.clients} clients, {options.seconds:g} s, {total} requests, {total / options.seconds:.0f} per second"
    )
    print(f"{'request':14}{'count':>7}{'median':>10}{'95 %':>10}{'99 %':>10}  ms")
    for kind, seconds in sorted(log.seconds.items()):
        times = "".join(f"{1000 * np.percentile(seconds, share):10.0f}" for share in (50, 95, 99))
        print(f"{kind:14}{len(seconds):7}{times}")
    print(
        f"scenes let go and sent again: {log.counts['scenes sent again']}; cache {cache:.0f} of {CACHE / 2**20:.0f} MB"
    )
    third = len(memory) // 3
    middle, last = max(memory[third : 2 * third]), max(memory[2 * third :])
    print(f"memory of the service: {memory[0]:.0f} MB before, {max(memory):.0f} MB at most; ", end="")
    print(f"at most {middle:.0f} MB in the second third of the time, {last:.0f} MB in the last")
    print(f"wrong answers: {len(log.wrong)}; exit code after SIGTERM: {stopped}")
    for what, count in Counter(log.wrong).most_common(5):
        print(f"  {count} x {what}")


if __name__ == "__main__":
    main()
