"""Where every class has masks, or none has, all rules agree: labels are found without a ranking."""

import pytest
import torch

from joem import decision


@pytest.mark.parametrize("names", [None, ["zebra", "cow|horse"]])
@pytest.mark.parametrize("rule", [{"rule": "ac", "sigma": 0.6}, {"rule": "cs", "gamma": 0.3}, {"rule": "nn"}])
def test_classes_that_are_all_trained_or_all_new_need_no_ranking_until_somebody_asks_how_sure(
    segmenter, picture, monkeypatch, names, rule
):
    known, scene, rank, ranked = segmenter.encode(picture), segmenter.encode(picture), decision.rank, []
    names = names or list(segmenter.vocabulary.seen)
    ranking = known.ranking(names, background=False)
    monkeypatch.setattr(decision, "rank", lambda *each: ranked.append(1) or rank(*each))
    found = scene.segment(names, background=False, **rule)
    with monkeypatch.context() as patch:
        patch.setattr(decision, "nearest", lambda *_: pytest.fail("searched again"))
        again = scene.segment(names, "ac", background=False, sigma=0.3)
    assert torch.equal(again.labels, found.labels)
    assert not ranked
    assert torch.equal(found.labels, decision.Decision.from_dict(rule).decide(ranking)[0])
    assert found.confidences() == known.segment(names, background=False, **rule).confidences()
    assert ranked
    assert torch.equal(scene.segment(names, background=False, **rule).labels, found.labels)  # by the ranking now
