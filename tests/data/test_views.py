from hypothesis import given
from hypothesis import strategies as st
from small_data import CLEAN, COW, COWS, Masks

from joem import data


def test_relabel_leaves_classes_out_as_void():
    pictures = data.relabel(Masks([COWS, CLEAN]), ("cow", "dog"))
    assert pictures.names == ("cow", "dog")
    assert pictures.background is None
    assert [pictures.labels(i).tolist() for i in range(2)] == [[[255, 0], [1, 0]], [[255, 1], [1, 255]]]
    assert pictures[0].labels.tolist() == [[255, 0], [1, 0]]
    assert data.class_pixels(pictures).tolist() == [[2, 1], [0, 2]]
    same = Masks([COWS])
    assert data.relabel(same, COW.names) is same


@given(
    presence=st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=40),
    unseen=st.sampled_from([(), ("cow",)]),
)
def test_divide_keeps_back_what_cannot_teach_and_a_fifth_of_the_rest(presence, unseen):
    labels = [[label if shown else 255 for label, shown in enumerate(each)] for each in presence]
    pictures = Masks([[each] for each in labels])
    cow = pictures.names.index("cow")
    train, val = (
        [part.labels(index).flatten().tolist() for index in range(len(part))] for part in data.divide(pictures, unseen)
    )
    assert sorted(train + val) == sorted(labels)
    with_cow = [each for each in labels if unseen and cow in each]
    others = [each for each in labels if each not in with_cow]
    assert not unseen or all(cow not in each for each in train)
    assert len(val) <= len(with_cow) + len(others) // 5
    for label in set(range(3)) - ({cow} if unseen else set()):
        assert any(label in each for each in others) == any(label in each for each in train)


def test_every_class_has_its_share_of_what_is_kept_back():
    rows = [[0, 1]] * 50 + [[0, 2]] * 10
    train, val = data.divide(Masks([[row] for row in rows]))
    assert data.class_presence(val).sum(dim=0).tolist() == [12, 10, 2]
    assert data.class_presence(train).sum(dim=0).tolist() == [48, 40, 8]
