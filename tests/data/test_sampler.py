import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_data import failure

from joem import data
from joem.errors import BadUsage


@settings(deadline=None, max_examples=80)
@given(
    st.integers(1, 60),
    st.integers(1, 20),
    st.integers(0, 5),
    st.integers(0, 3),
    st.integers(1, 4),
)
def test_processes_share_the_batches_of_one_process(length, size, seed, epoch, world):
    alone = data.EpochSampler(length, size, seed, epoch)
    batches = list(alone)
    indices = [index for batch in batches for _, index in batch]
    assert len(alone) == len(batches) >= 1
    assert len(set(indices)) == len(indices)
    assert all(key == epoch for batch in batches for key, _ in batch)
    assert set(indices) <= set(range(length))
    expected = length if length < size else length // size * size
    assert len(indices) == expected
    if min(len(batch) for batch in batches) < world:
        assert "cannot be shared" in failure(data.EpochSampler, length, size, seed, epoch, world=world, kind=BadUsage)
        return
    parts = [list(data.EpochSampler(length, size, seed, epoch, rank=rank, world=world)) for rank in range(world)]
    assert [[key for share in shares for key in share] for shares in zip(*parts, strict=True)] == batches
    lengths = [[len(share) for share in shares] for shares in zip(*parts, strict=True)]
    assert all(max(row) - min(row) <= 1 for row in lengths)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 8))
def test_resuming_in_the_middle_gives_the_tail(length, size, start):
    batches = list(data.EpochSampler(length, size, seed=1, epoch=2))
    rest = data.EpochSampler(length, size, seed=1, epoch=2, start_batch=start)
    assert list(rest) == batches[start:]
    assert len(rest) == len(batches[start:])


def test_orders_differ_between_epochs_and_seeds():
    orders = [
        tuple(index for batch in data.EpochSampler(50, 10, seed, epoch) for _, index in batch)
        for seed in range(3)
        for epoch in range(3)
    ]
    assert len(set(orders)) == 9


@pytest.mark.parametrize("arguments", [{"length": 0}, {"batch_size": 0}, {"rank": 1}, {"rank": -1}])
def test_impossible_samplers_are_errors(arguments):
    message = failure(data.EpochSampler, **{"length": 4, "batch_size": 2, "seed": 0, **arguments}, kind=BadUsage)
    assert "length >= 1, batch_size >= 1 and 0 <= rank < world" in message
