"""Pictures that several processes of one service share, so that each of them can encode a scene again."""

from collections import OrderedDict
from typing import NamedTuple, Protocol


class SentPicture(NamedTuple):
    """A picture file as it was sent, and the name of the model it was sent for; None for the default one."""

    body: bytes
    model: str | None


class SharedPictures(Protocol):
    """What the processes of a service keep together.

    Attributes:
        secret: what they all make keys with.
    """

    secret: bytes

    def put(self, key: str, picture: SentPicture) -> None:
        """Keep a picture by the key of its scene."""

    def get(self, key: str) -> SentPicture | None:
        """The picture of a scene, if it is still kept."""


class PictureStore:
    """The pictures used last, as long as they fit. Called from one thread.

    Args:
        limit: bytes to stay within; the newest picture is kept even if it alone is larger.

    >>> store = PictureStore(3)
    >>> for key in "ab":
    ...     store.put(key, SentPicture(b"..", None))
    >>> store.get("a"), store.get("b")
    (None, SentPicture(body=b'..', model=None))
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._bytes = limit, 0
        self._pictures: OrderedDict[str, SentPicture] = OrderedDict()

    def put(self, key: str, picture: SentPicture) -> None:
        """Keep a picture, and let go of those used longest ago."""
        known = self._pictures.pop(key, None)
        self._bytes += len(picture.body) - (len(known.body) if known else 0)
        self._pictures[key] = picture
        while self._bytes > self._limit and len(self._pictures) > 1:
            self._bytes -= len(self._pictures.popitem(last=False)[1].body)

    def get(self, key: str) -> SentPicture | None:
        """The picture, which is now the one used last."""
        if key in self._pictures:
            self._pictures.move_to_end(key)
        return self._pictures.get(key)
