"""Class centres in the joint space, and prototypes between them for words without a centre of their own."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from joem import losses
from joem.losses_compared import squared_distance_to_centres
from joem.methods.base import products
from joem.vocabulary import Vocabulary

_SHARPNESS = 10.0  # what the cosine of two words is multiplied by before the softmax over the seen classes
_LENGTH = 0.75  # how far a mean of centres is moved out to the length of centres: 0 not at all, 1 all the way
_SAME = 0.9999  # words with a larger cosine are one word


class Centres(nn.Module):
    """A learned centre m_c for every seen class.

    Args:
        vocabulary: the classes; labels are its indices.
        channels: C, the size of the space.
        members: of how many parts, that learn apart, features and centres consist.
    """

    def __init__(self, vocabulary: Vocabulary, channels: int, members: int = 1) -> None:
        super().__init__()
        self._members, self._count = members, len(vocabulary)
        self._seen = list(vocabulary.seen_indices)
        self._objects = [row for row, name in enumerate(vocabulary.seen) if name != vocabulary.background]
        self.weight = nn.Parameter(torch.randn(len(vocabulary), channels)[self._seen])

    def terms(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """L_ce and L_centre of features (B,C,H,W), each the mean of the members'.

        L_ce is the cross-entropy of softmax(-|v - m_c|^2 / 2) over the seen classes, L_centre the sum of |v - m_c|^2
        over the pixels of seen objects, both divided by the number of labelled pixels. The background is many things
        and is drawn to no one place.
        """
        members, seen = self._members, torch.tensor(self._seen, device=self.weight.device)
        centres = self.weight.new_zeros(self._count, self.weight.shape[1]).index_copy(0, seen, self.weight)
        with torch.autocast(features.device.type, enabled=False):
            features = features.to(centres.dtype)
            lengths = centres.square().reshape(len(centres), members, -1).sum(dim=2).T  # (M,K)
            logits = products(features, centres, members) - lengths.repeat(len(features), 1)[:, :, None, None] / 2
            pull = squared_distance_to_centres(features, labels, centres, seen[self._objects])
            apart = labels.repeat_interleave(members, dim=0)
            return {"ce": losses.seen_cross_entropy(logits, apart, seen), "centre": pull / members}

    def prototypes(self, vectors: Tensor, known: Tensor) -> Tensor:
        """The centre of a seen class by its word; for any other word w one between the centres of the seen objects c.

            u = sum_c a_c m_c,    mu(w) = u (sum_c a_c |m_c| / |u|)^(3/4),    a = softmax_c(10 cos(w, s_c)),

        with s_c the word vectors of the seen classes. The mean u of many centres is short, and so nearer to everything
        than that of two: the power takes most of what a vague word gains by that.

        Args:
            vectors: word vectors of the classes asked for, (n,D).
            known: word vectors of the vocabulary, (K,D).
        """
        sources = self._objects or list(range(len(self._seen)))
        cosines = F.normalize(vectors, dim=1) @ F.normalize(known[self._seen], dim=1).T
        centres, shares = self.weight[sources], (_SHARPNESS * cosines[:, sources]).softmax(dim=1)
        means, lengths = shares @ centres, shares @ centres.norm(dim=1, keepdim=True)
        between = means * (lengths / means.norm(dim=1, keepdim=True)) ** _LENGTH
        nearest, row = cosines.max(dim=1)
        return torch.where((nearest > _SAME).unsqueeze(1), self.weight[row], between)
