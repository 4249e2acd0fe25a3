"""Many clients for long, on loopback: every answer is compared with what `Segmenter` gives in this process.

Starts `joem serve` itself and stops it at the end. Clients send the sample photos and drawn pictures, and ask for
random words by random rules and options, wrong ones among them. The service keeps so few pictures that its cache is
full within minutes: memory that grows after that is lost. Ends with 1 if an answer was wrong, a request failed inside
the service, its memory did not stay level or it did not stop in good order. Linux.

    make soak, or: python benchmarks/soak.py --clients 16 --minutes 30
"""

import argparse
import io
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import httpx2 as httpx
import numpy as np
from PIL import Image

from _service import Running, decide, serving
from joem import Segmenter, decision
from joem.data import scenes
from joem.errors import JoemError
from joem.model_folder import DEFAULT_MODEL
from joem.scene import Scene
from joem.web.gallery import photos

THINGS = (
    "person, dog, cat, horse, zebra, bird, fish, tree, grass, flower, sky, cloud, water, sand, snow, mountain, road, "
    "wall, floor, window, door, roof, bridge, car, lorry, bus, bicycle, train, ship, rocket, tripod, camera, cup, "
    "bottle, table, chair, bed, lamp, book, hat, shirt, shoe, ball, kite, clock, sofa|couch, red hat|blue hat, striped "
    "shirt, elephannt, qwzx, not: shadow, okapi: a striped animal"
)
"""What is asked for: common things, several words for one, words that are none, an exclusion and a description."""

KINDS = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp", "TIFF": "image/tiff"}
SIDES = (24, 480)
DRAWN = 20
NEW_PICTURE = 0.05
FORMS = ("segment", "segment", "mask", "ranking", "explain")
TOLD = 5
CACHE = 100 << 20
"""Bytes for pictures in the service."""

MINUTE = 60
"""Seconds before each quarter of which the least memory counts: the rest is that of work under way."""

LEVEL = 0.05
"""By how much memory may differ between quarters after the first."""


class Known:
    """A picture file and its scene in this process."""

    def __init__(self, segmenter: Segmenter, body: bytes, media_type: str) -> None:
        self.body, self.media_type = body, media_type
        self.scene: Scene = segmenter.encode(body)

    @classmethod
    def drawn(cls, segmenter: Segmenter, chance: random.Random) -> "Known":
        """A picture that nobody has sent before."""
        width, height = (chance.randint(*SIDES) for _ in range(2))
        sample = scenes.Scenes(1, max(width, height), seed=chance.randrange(2**31))[0]
        kind, file = chance.choice(list(KINDS)), io.BytesIO()
        Image.fromarray(sample.image.permute(1, 2, 0).numpy()).crop((0, 0, width, height)).save(file, kind)
        return cls(segmenter, file.getvalue(), KINDS[kind])


class Reference:
    """What this process gives. One answer at a time is computed, which leaves the machine to the service."""

    def __init__(self, segmenter: Segmenter) -> None:
        self._segmenter, self._lock, self._chance = segmenter, threading.Lock(), random.Random(0)
        self.words = (*THINGS.split(", "), *segmenter.vocabulary.names)
        self.pictures = [Known(segmenter, each.content, each.media_type) for each in photos(segmenter)]
        self.pictures += [Known.drawn(segmenter, self._chance) for _ in range(DRAWN)]

    def replace(self) -> None:
        """Draw a new picture in the place of another drawn one."""
        with self._lock:
            self.pictures[-self._chance.randint(1, DRAWN)] = Known.drawn(self._segmenter, self._chance)

    def difference(self, known: Known, form: str, asked: dict[str, Any], answer: httpx.Response) -> str | None:
        """What is wrong with an answer of the service, if anything."""
        with self._lock:
            try:
                expected = known.scene.explain(**asked) if form == "explain" else known.scene.segment(**asked)
            except JoemError as error:
                told = answer.json().get("message") if answer.status_code == 422 else None
                return None if told == str(error) else f"{answer.status_code} {told!r} instead of {str(error)!r}"
            if answer.status_code != 200:
                return f"{answer.status_code} {answer.text[:200]}"
            if form in {"explain", "segment"}:
                return _different_value(answer.json(), expected.to_dict())
            found = np.asarray(Image.open(io.BytesIO(answer.content))) if form == "mask" else _decided(answer, asked)
            wrong = np.count_nonzero(found != expected.labels.numpy())
            return f"{wrong} of {found.size} labels" if wrong else None


def _different_value(found: dict[str, Any], expected: dict[str, Any]) -> str | None:
    wrong = [key for key in expected if found.get(key) != expected[key]]
    return f"{wrong[0]}: {found.get(wrong[0])!r} instead of {expected[wrong[0]]!r}" if wrong else None


def _decided(answer: httpx.Response, asked: dict[str, Any]) -> np.ndarray:
    parameter = decision.RULES[asked["rule"]].parameter
    return decide(answer.content, asked["rule"], asked[parameter.name] if parameter else None)


def question(form: str, known: Known, words: Sequence[str], chance: random.Random) -> dict[str, Any]:
    """Something to ask about a picture, as `Scene.segment` or `Scene.explain` takes it."""
    height, width = known.scene.size
    asked: dict[str, Any] = {"background": chance.random() < 0.8}
    if chance.random() < 0.9:
        asked["names"] = list(dict.fromkeys(chance.choice(words) for _ in range(chance.randint(1, 8))))
    if chance.random() < 0.2:
        asked["points"] = {"thing": [(chance.randrange(width), chance.randrange(height)) for _ in range(2)]}
    if form == "explain":
        return {**asked, "x": chance.randrange(width), "y": chance.randrange(height)}
    asked["rule"] = chance.choice(list(decision.RULES))
    for name, parameter in decision.parameters().items():
        asked[name] = round(chance.uniform(0.01, min(parameter.largest, 2)), 3)
    if form != "ranking":
        asked["strict_words"] = chance.random() < 0.1
        asked["min_score"] = 0.5 if chance.random() < 0.1 else None
    return asked


class Log:
    """What all clients saw."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._lock = threading.Lock()

    def count(self, what: str, fault: str | None = None) -> None:
        """One more of something, and what it was if it should not have been."""
        with self._lock:
            self.counts[what] += 1
            if fault is not None:
                self.faults.append(fault)

    def __str__(self) -> str:
        told = ("compared", "wrong answers", "5xx", "refusals", "too late", "asked again", "scenes let go")
        return f"{self.counts['requests']} requests; " + ", ".join(f"{what}: {self.counts[what]}" for what in told)


class Client(threading.Thread):
    """Asks until the time is over."""

    def __init__(self, number: int, address: str, reference: Reference, log: Log, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._chance, self._http = random.Random(number), httpx.Client(base_url=address, timeout=90)
        self._reference, self._log, self._over = reference, log, over
        self._keys: WeakKeyDictionary[Known, str] = WeakKeyDictionary()

    def run(self) -> None:
        """One question after another."""
        with self._http:
            while not self._over.is_set():
                try:
                    self._ask()
                except Exception as error:
                    self._log.count("wrong answers", repr(error))

    def _ask(self) -> None:
        if self._chance.random() < NEW_PICTURE:
            self._reference.replace()
        known = self._chance.choice(self._reference.pictures)
        if known not in self._keys and not self._send(known):
            return
        form = self._chance.choice(FORMS)
        asked = question(form, known, self._reference.words, self._chance)
        # A ranking holds for all values of its rule.
        sent = {key: value for key, value in asked.items() if form != "ranking" or key not in decision.parameters()}
        answer = self._post(f"/api/scenes/{self._keys[known]}/{form}", json=sent)
        if answer is None:
            return
        if answer.status_code == 404:
            self._log.count("scenes let go")
            del self._keys[known]
            return
        wrong = self._reference.difference(known, form, asked, answer)
        self._log.count("compared")
        if wrong is not None:
            self._log.count("wrong answers", f"{form} of {known.scene.size} for {asked}: {wrong}")

    def _send(self, known: Known) -> bool:
        answer = self._post("/api/scenes", content=known.body, headers={"Content-Type": known.media_type})
        if answer is None:
            return False
        if answer.status_code != 200:
            fault = f"a picture of {known.scene.size}: {answer.status_code} {answer.text[:200]}"
            self._log.count("wrong answers", fault)
            return False
        self._keys[known] = answer.json()["scene"]
        return True

    def _post(self, path: str, **options: Any) -> httpx.Response | None:
        """The answer; None if there is none to compare."""
        try:
            answer = self._http.post(path, **options)
        except httpx.RemoteProtocolError:  # the service closed an idle connection just now; HTTP says to ask once more
            self._log.count("asked again")
            answer = self._http.post(path, **options)
        self._log.count("requests")
        if answer.status_code in {429, 503} and "retry-after" in answer.headers:
            self._log.count("refusals")
            self._over.wait(float(answer.headers["retry-after"]))
            return None
        if answer.status_code == 504:  # a machine that has other work to do
            self._log.count("too late")
            return None
        if answer.status_code >= 500:
            self._log.count("5xx", f"{path}: {answer.status_code} {answer.text[:200]}")
            return None
        return answer


class Outcome(NamedTuple):
    """What a run came to.

    Attributes:
        log: what all clients saw.
        memory: what the service held at the start and at each quarter of the time, in MB.
        exit_code: what it ended with.
        peak: the most that it held, with the work under way, in MB.
    """

    log: Log
    memory: list[float]
    exit_code: int | None
    peak: float

    @property
    def change(self) -> float:
        """The largest of the memory after the first quarter by the smallest, less one."""
        return max(self.memory[1:]) / min(self.memory[1:]) - 1


def soak(model: str, clients: int, minutes: float) -> Outcome:
    """Run a service and clients, and tell at every quarter of the time how it is.

    Args:
        model: what is served.
        clients: how many ask at the same time.
        minutes: for how long.
    """
    expected, log, over = Reference(Segmenter.load(model)), Log(), threading.Event()
    memory: list[float] = []
    peak = 0.0
    with serving(model, "--limits.cache_bytes", str(CACHE)) as service:
        threads = [Client(number, service.address, expected, log, over) for number in range(clients)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for quarter in range(5):
            found = _resident_until(start + 15 * minutes * quarter, service)
            memory.append(min(found[-MINUTE:]))
            peak = max(peak, *found)
            holds = f"memory of the service: {memory[-1]:.0f} MB, of it counted for pictures: {service.cached():.0f}"
            print(f"{minutes * quarter / 4:5.1f} min: {log}; {holds}", flush=True)
        over.set()
        for thread in threads:
            thread.join(120)
    return Outcome(log, memory, service.exit_code, peak)


def _resident_until(moment: float, service: Running) -> list[float]:
    """The memory of the service every second up to a moment."""
    found = [service.resident()]
    while (left := moment - time.monotonic()) > 0:
        time.sleep(min(1.0, left))
        found.append(service.resident())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--minutes", type=float, default=30)
    options = parser.parse_args()
    outcome = soak(options.model, options.clients, options.minutes)
    log, memory, exit_code, peak = outcome
    print(f"{options.clients} clients, {options.minutes:g} min: {log}; exit code after SIGTERM: {exit_code}")
    held = ", ".join(f"{each:.0f}" for each in memory)
    print(
        f"memory that the service held at the start and at each quarter: {held} MB; at most, with work: {peak:.0f} MB"
    )
    print(f"after the first quarter they are within {outcome.change:.1%}, {LEVEL:.0%} are allowed")
    for fault in log.faults[:TOLD]:
        print(f"  {fault}")
    sys.exit(bool(log.faults) or exit_code != 0 or outcome.change > LEVEL)


if __name__ == "__main__":
    main()
