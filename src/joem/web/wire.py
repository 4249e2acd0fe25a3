"""A ranking as bytes, so that the page can decide every pixel itself, by any value of a rule, as the service would.

    4 bytes        length of the header, little-endian
    header         JSON (width, height, rule, names, asked, unseen, notes, colours), filled up with spaces to 4 bytes
    4 x pixels     distance to the nearest seen class, float32, little-endian; infinite if there is none
    4 x pixels     distance to the second nearest seen class
    4 x pixels     distance to the nearest unseen class
    4 x pixels     value of the rule's parameter at which the pixel turns from the seen to the unseen class
    4 x pixels     only where scores are asked for: the score of the pixel if it takes its nearest seen class
    4 x pixels     and the same for its nearest unseen class
    1 x pixels     label of the nearest seen class, an index into names; 255 if there is none
    1 x pixels     label of the nearest unseen class

The unseen class wins where the parameter, rounded to float32, is beyond the turning point: above it if the parameter
rises, below it if it falls; a rule without a parameter counts as one that rises, at 0. Numbers go as they are, in full:
any rounding would flip pixels at the border of a rule.
"""

import json
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from joem.classes import AskedClasses
from joem.decision import Ranking, Rule
from joem.vocabulary import colours

MEDIA_TYPE = "application/vnd.joem.ranking"


def pack(
    ranking: Ranking, rule: Rule, classes: AskedClasses, background: str | None, scores: Sequence[Tensor] = ()
) -> bytes:
    """The bytes of the ranking (1,Ho,Wo) of one picture by at most 255 classes, and of where it turns under a rule.

    `scores` (Ho,Wo) are those of the nearest seen and of the nearest unseen class, if they are to be sent.
    """
    height, width = ranking.seen.shape[1:]
    described = {
        "names": classes.names,
        "asked": classes.asked,
        "unseen": [classes.names[index] for index in classes.unseen],
        "notes": classes.notes,
        "colours": colours(classes.names, background),
    }
    header = json.dumps({"width": width, "height": height, "rule": rule.name, **described}).encode()
    header += b" " * (-len(header) % 4)
    distances = (ranking.seen_distance, ranking.second_seen_distance, ranking.unseen_distance)
    planes = [_bytes(plane, "<f4") for plane in (*distances, rule.turning(ranking), *scores)]
    planes += [
        _bytes(plane, "u1") for plane in (ranking.seen % 256, ranking.unseen.clamp(min=-1) % 256)
    ]  # -1 becomes 255
    return b"".join((len(header).to_bytes(4, "little"), header, *planes))


def _bytes(plane: Tensor, dtype: str) -> bytes:
    return plane.cpu().numpy().astype(np.dtype(dtype)).tobytes()
