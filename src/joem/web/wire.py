"""A ranking as bytes, so that the page can decide every pixel itself, by any rule, as the service would.

    4 bytes        length of the header, little-endian
    header         JSON (width, height, names, unseen, colours), filled up with spaces to a multiple of 4 bytes
    4 x pixels     distance to the nearest seen class, float32, little-endian; infinite if there is none
    4 x pixels     distance to the second nearest seen class
    4 x pixels     distance to the nearest unseen class
    1 x pixels     label of the nearest seen class, an index into names; 255 if there is none
    1 x pixels     label of the nearest unseen class

The distances go as they are, in full: any rounding would flip pixels at the border of a rule.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from joem.decision import Ranking
from joem.vocabulary import colours

MEDIA_TYPE = "application/vnd.joem.ranking"


def pack(ranking: Ranking, names: Sequence[str], unseen: Sequence[str], background: str | None) -> bytes:
    """The bytes of the ranking (1,Ho,Wo) of one picture by at most 255 names."""
    height, width = ranking.seen.shape[1:]
    header = json.dumps({"width": width, "height": height, **describe(names, unseen, background)}).encode()
    header += b" " * (-len(header) % 4)
    distances = (ranking.seen_distance, ranking.second_seen_distance, ranking.unseen_distance)
    planes = [_bytes(plane, "<f4") for plane in distances]
    planes += [_bytes(plane, "u1") for plane in (ranking.seen % 256, ranking.unseen % 256)]  # -1 becomes 255
    return b"".join((len(header).to_bytes(4, "little"), header, *planes))


def describe(names: Sequence[str], unseen: Sequence[str], background: str | None) -> dict[str, Any]:
    """The names with what the page shows of them."""
    return {"names": list(names), "unseen": list(unseen), "colours": [list(c) for c in colours(names, background)]}


def _bytes(plane: Tensor, dtype: str) -> bytes:
    return plane.cpu().numpy().astype(np.dtype(dtype)).tobytes()
