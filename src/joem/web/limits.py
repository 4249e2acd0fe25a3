"""What one request, and all of them together, may cost."""

from dataclasses import dataclass, fields

from joem.errors import BadUsage

MOST_CLASSES = 255
"""A label is one byte on the way to the page, and 255 means that there is no such class."""

LONGEST_SECONDS = 86_400
"""The longest time that makes sense; the system's own clocks of connections overflow after some days."""

MOST_POINTS = 255
"""Points, or examples, of one class in a request."""


@dataclass(frozen=True)
class Limits:
    """Bounds of the service.

    Args:
        bytes: size of a picture file.
        json_bytes: size of any other request's body.
        pixels: width x height of a picture, checked before it is decoded.
        mask_pixels: width x height that a mask can be asked for in.
        classes: class names in one request, each alternative ("sofa|couch") and example counted; at most 255.
        name_length: characters of a class name with its description.
        workers: pictures encoded or decided at the same time.
        queue: requests with a body that are read, wait or are worked on; one more is answered with 503.
        per_client: of these, how many may come from one address; one more is answered with 429.
        connections: open connections; one more is answered with 503.
        connections_per_client: of these, how many may come from one address, and never more than half; one more is
            answered with 429.
        header_seconds: time for the headers of a request to arrive.
        seconds: time for a body to arrive, for its work, and for a client to take each 256 KB of the answer.
        cache_bytes: memory for encoded pictures; the last one is kept however large it is.
    """

    bytes: int = 10_000_000
    json_bytes: int = 200_000
    pixels: int = 2_000_000
    mask_pixels: int = 50_000_000
    classes: int = MOST_CLASSES
    name_length: int = 300
    workers: int = 2
    queue: int = 64
    per_client: int = 32
    connections: int = 256
    connections_per_client: int = 64
    header_seconds: float = 10.0
    seconds: float = 30.0
    cache_bytes: int = 500_000_000

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise BadUsage(f"limits.{field.name} must be more than 0, got {getattr(self, field.name)}.")
            if field.name.endswith("seconds") and getattr(self, field.name) > LONGEST_SECONDS:
                raise BadUsage(f"limits.{field.name} can be {LONGEST_SECONDS} (a day) at most: nobody waits longer.")
        if self.classes > MOST_CLASSES:
            raise BadUsage(f"limits.classes can be {MOST_CLASSES} at most, got {self.classes}.")
