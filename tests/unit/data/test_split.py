import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from primus_hydra.data.split import Part, map_split, read_counts, split_documents, write_split


def offsets(lengths: list[int]):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def covered(part: Part) -> set[int]:
    return {token for start, end in zip(part.starts, part.ends, strict=True) for token in range(start, end)}


@given(lengths=st.lists(st.integers(2, 50), min_size=1, max_size=60), fraction=st.floats(0.001, 0.9))
def test_every_token_is_in_exactly_one_part_and_neither_part_is_empty(lengths, fraction):
    parts = split_documents(offsets(lengths), fraction)
    train, validation = covered(parts["train"]), covered(parts["validation"])
    assert not train & validation
    assert len(train | validation) == sum(lengths) == parts["train"].tokens + parts["validation"].tokens
    assert train
    assert validation


def test_held_out_documents_are_whole_and_lie_evenly_over_the_corpus():
    parts = split_documents(offsets([10] * 100), 0.04)
    assert (parts["validation"].starts // 10).tolist() == [12, 37, 62, 87]
    assert parts["validation"].tokens == 40


def test_of_few_documents_the_end_of_the_longest_is_held_out():
    parts = split_documents(offsets([100, 1000, 100]), 0.01)
    assert (parts["validation"].starts.tolist(), parts["validation"].ends.tolist()) == ([1088], [1100])
    assert parts["train"].tokens == 1188


def test_fraction_zero_holds_nothing_out():
    parts = split_documents(offsets([5, 5]), 0.0)
    assert (parts["train"].tokens, parts["validation"].tokens) == (10, 0)


def test_tables_on_disk_give_back_the_split(tmp_path):
    parts = split_documents(offsets([4, 6, 1, 9]), 0.25)
    write_split(tmp_path, parts)
    counts = read_counts(tmp_path)
    assert counts is not None
    assert (counts["train"].documents, counts["train"].tokens, counts["train"].pairs) == (3, 19, 16)
    starts, pair_ends = map_split(tmp_path, "train", 3)
    assert starts.tolist() == parts["train"].starts.tolist()
    assert pair_ends.tolist() == [0, 3, 8, 16]


@pytest.mark.parametrize("name", ["split.json", "train.starts.bin", "validation.pairs.bin"])
def test_a_truncated_table_is_told_by_its_size(tmp_path, name):
    write_split(tmp_path, split_documents(offsets([4, 6, 5, 9]), 0.25))
    file = tmp_path / name
    file.write_bytes(file.read_bytes()[:-1])
    assert read_counts(tmp_path) is None
