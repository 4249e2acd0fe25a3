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
