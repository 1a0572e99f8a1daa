from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_hydra.data.samples import MockSamples, TokenSamples
from primus_hydra.data.split import Part

documents_of_lengths = st.lists(st.integers(1, 40), min_size=1, max_size=30)


def pack(lengths: list[int], seq_length: int, *, document_mask: bool = True) -> TokenSamples:
    """Token n of the corpus is n, so that a sample shows where each of its tokens came from."""
    ends = np.cumsum(lengths, dtype=np.int64)
    part = Part(starts=ends - lengths, ends=ends)
    tokens = np.arange(ends[-1], dtype=np.uint16)
    return TokenSamples(tokens, part.starts, part.pair_ends, seq_length=seq_length, document_mask=document_mask)


def pairs_of(lengths: list[int]) -> list[tuple[int, int]]:
    start, pairs = 0, []
    for length in lengths:
        pairs += list(pairwise(range(start, start + length)))
        start += length
    return pairs


@given(lengths=documents_of_lengths, seq_length=st.integers(1, 50))
def test_an_epoch_holds_every_pair_of_every_document_once_but_for_the_tail(lengths, seq_length):
    samples = pack(lengths, seq_length)
    seen = [
        (int(token), int(label))
        for index in range(len(samples))
        for token, label in zip(samples.sample(index).inputs, samples.sample(index).labels, strict=True)
    ]
    expected = pairs_of(lengths)
    assert seen == expected[: len(seen)]
    assert 0 <= len(expected) - len(seen) < seq_length


@given(lengths=documents_of_lengths, seq_length=st.integers(1, 50))
def test_no_label_crosses_documents_and_positions_restart_with_each(lengths, seq_length):
    samples = pack(lengths, seq_length)
    document = np.repeat(np.arange(len(lengths)), lengths)
    for index in range(len(samples)):
        sample = samples.sample(index)
        assert (document[sample.inputs] == document[sample.labels]).all()
        expected, before = [], None
        for token in sample.inputs:
            expected.append(expected[-1] + 1 if document[token] == before else 0)
            before = document[token]
        assert sample.positions.tolist() == expected


def test_without_document_mask_positions_run_through_the_sample_and_tokens_stay():
    masked, plain = (pack([5, 4, 9], 6, document_mask=mask).sample(1) for mask in (True, False))
    assert masked.positions.tolist() == [0, 0, 1, 2, 3, 4]
    assert plain.positions.tolist() == [0, 1, 2, 3, 4, 5]
    assert plain.inputs.tolist() == masked.inputs.tolist() == [7, 9, 10, 11, 12, 13]


def test_arrays_are_int64_of_the_sequence_length():
    sample = pack([30], 8).sample(2)
    assert {(array.dtype.name, array.shape) for array in (sample.inputs, sample.labels, sample.positions)} == {
        ("int64", (8,))
    }


@pytest.mark.parametrize("index", [-1, 3])
def test_a_sample_outside_the_split_is_an_index_error(index):
    samples = pack([30], 9)
    assert len(samples) == 3
    with pytest.raises(IndexError):
        samples.sample(index)


def test_mock_tokens_depend_on_seed_and_index_only_and_stay_in_the_vocabulary():
    samples = MockSamples(seq_length=100, vocab_size=7, seed=3)
    sample, again = samples.sample(10**9), MockSamples(seq_length=100, vocab_size=7, seed=3).sample(10**9)
    assert sample.inputs.tolist() == again.inputs.tolist() != samples.sample(0).inputs.tolist()
    assert sample.inputs[1:].tolist() == sample.labels[:-1].tolist()
    assert set(sample.inputs.tolist()) == set(range(7))
    assert sample.positions.tolist() == list(range(100))
    assert sample.inputs.tolist() != MockSamples(seq_length=100, vocab_size=7, seed=4).sample(10**9).inputs.tolist()
