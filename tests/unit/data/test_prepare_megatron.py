from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from megatron.core.datasets.blended_megatron_dataset_config import (
    convert_split_vector_to_split_matrix,
    parse_and_normalize_split,
)

from primus_hydra.config.schema import JobConfig
from primus_hydra.data.blend import BlendPart, read_blend
from primus_hydra.data.check import check_data
from primus_hydra.data.megatron_corpus import documents_of_split, split_text
from primus_hydra.data.megatron_index import bin_file, index_file
from primus_hydra.data.prepare import open_samples
from primus_hydra.data.prepared import Blend, PreparedData
from primus_hydra.errors import UserError
from tests.unit.config.conftest import Compose, composed, write  # noqa: F401 - fixtures
from tests.unit.data.indexed import VOCABULARY, indexed_job, numbered_documents, write_indexed, write_tokenizer
from tests.unit.data.support import prepare


def problems_of(job: JobConfig) -> str:
    return "\n".join(str(problem) for problem in check_data(job))


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return write_tokenizer(tmp_path / "tokenizer")


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return write_indexed(tmp_path / "sets" / "books", numbered_documents(50))


def test_one_prefix_is_described_for_the_ranks(prefix, tokenizer):
    lines: list[str] = []
    job = indexed_job(prefix, tokenizer)
    assert check_data(job) == []
    prepared = prepare(job, lines)
    lengths = [len(document) for document in numbered_documents(50)]
    assert prepared.blend == Blend(prefixes=[str(prefix)], weights=[1.0])
    assert (prepared.vocab_size, prepared.eos_id, prepared.tokens_dir) == (VOCABULARY, 0, None)
    assert (prepared.train_tokens, prepared.validation_tokens) == (sum(lengths[:45]), sum(lengths[45:]))
    assert lines == [f"corpus: 1 indexed data set, 50 documents, {sum(lengths)} tokens"]
    assert PreparedData.from_json(json.loads(json.dumps(prepared.to_json()))) == prepared


def test_a_blend_keeps_its_order_and_its_weights_add_up_to_one(tmp_path, prefix, tokenizer):
    other = write_indexed(tmp_path / "sets" / "code", numbered_documents(30))
    prepared = prepare(indexed_job(["3", str(other), "1", str(prefix)], tokenizer))
    assert prepared.blend == Blend(prefixes=[str(other), str(prefix)], weights=[0.75, 0.25])


def test_prefixes_without_weights_weigh_as_many_tokens_as_they_have(tmp_path, tokenizer):
    small, large = (
        write_indexed(tmp_path / name, [[5] * 9 + [0]] * count) for name, count in (("small", 20), ("large", 60))
    )
    blend = prepare(indexed_job([str(small), str(large)], tokenizer)).blend
    assert blend is not None
    assert blend.weights == (0.25, 0.75)


@pytest.mark.parametrize(
    "typed", ["data.path=[0.7,A,0.30,B]", "data.path=[0.7, A, .3, B]", 'data.path=["0.7","A","3e-1","B"]']
)
def test_weights_on_the_command_line_stay_numbers_and_prefixes_become_absolute(composed: Compose, typed):  # noqa: F811
    path = composed("data=megatron", typed).job.data.path
    parts, problems = read_blend(path)
    assert parts == [
        BlendPart(prefix=Path.cwd() / "A", weight=0.7),
        BlendPart(prefix=Path.cwd() / "B", weight=0.3),
    ]
    assert problems == []


def test_weights_in_a_file_stay_numbers_too(composed: Compose, tmp_path):  # noqa: F811
    file = tmp_path / "x.yaml"
    file.write_text("data:\n  kind: megatron\n  path:\n  - 0.70\n  - A\n  - 1\n  - ./2\n")
    job = composed(f"experiment={file}").job
    assert [part.weight for part in read_blend(job.data.path)[0]] == [0.7, 1.0]
    assert [part.prefix.name for part in read_blend(job.data.path)[0]] == ["A", "2"]


def test_a_file_of_text_may_still_be_called_like_a_number(composed: Compose):  # noqa: F811
    assert composed("data=text", "data.path=[7]").job.data.path == [str(Path.cwd() / "7")]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (None, "needs the prefix"),
        (["0.7", "A", "B"], "do not alternate: 0.7, A, B"),
        (["A", "0.7", "B", "0.3"], "do not alternate"),
        (["0.5"], "do not alternate"),
        (["0", "A", "1", "B"], "must be a positive number"),
        (["-1", "A", "1", "B"], "must be a positive number"),
        (["1e999", "A", "1", "B"], "must be a positive number"),
        (["A", "B", "./A"], "A is named 2 times"),
    ],
)
def test_a_blend_of_the_wrong_shape_is_refused(path, says):
    _, problems = read_blend(path)
    assert says in " ".join(problem.what for problem in problems)
    assert {problem.key for problem in problems} == {"data.path"}


def test_a_missing_prefix_is_answered_with_the_nearest_ones(prefix, tokenizer):
    assert f"did you mean {prefix}?" in problems_of(indexed_job(prefix.with_name("bocks"), tokenizer))
    assert "holds: books" in problems_of(indexed_job(prefix.with_name("qqqqqq"), tokenizer))
    assert "leave the ending out" in problems_of(indexed_job(bin_file(prefix), tokenizer))
    assert "there is no folder" in problems_of(indexed_job(prefix.parent / "gone" / "books", tokenizer))


@pytest.mark.parametrize(("which", "other"), [(bin_file, "books.idx"), (index_file, "books.bin")])
def test_half_a_data_set_is_named(prefix, tokenizer, which, other):
    which(prefix).unlink()
    assert f"there is no such file beside {other}" in problems_of(indexed_job(prefix, tokenizer))


def test_files_that_do_not_belong_together_are_refused(prefix, tokenizer):
    file = bin_file(prefix)
    file.write_bytes(file.read_bytes()[:-2])
    assert re.search(
        r"books.bin has 1,\d+ bytes, and its index speaks of 1,\d+", problems_of(indexed_job(prefix, tokenizer))
    )


def test_a_file_that_is_no_index_is_refused_by_name(prefix, tokenizer):
    index_file(prefix).write_text("not an index at all, but long enough for its head")
    assert "books.idx: does not begin as a Megatron index" in problems_of(indexed_job(prefix, tokenizer))


def test_problems_of_all_prefixes_are_gathered(prefix, tokenizer):
    job = indexed_job(["1", str(prefix.with_name("one")), "0", str(prefix.with_name("two"))], tokenizer)
    assert len(check_data(job)) == 3


@pytest.mark.parametrize("dtype", ["<u2", "<i4"])
def test_a_token_beyond_the_vocabulary_is_seen_in_any_of_the_documents_looked_at(tmp_path, tokenizer, dtype):
    documents = numbered_documents(16)
    documents[7][3] = VOCABULARY
    prefix = write_indexed(tmp_path / "a", documents, dtype=dtype)
    assert f"document 7 holds token {VOCABULARY}, and the vocabulary has {VOCABULARY}" in problems_of(
        indexed_job(prefix, tokenizer)
    )


def test_a_negative_token_is_none(tmp_path):
    prefix = write_indexed(tmp_path / "a", [[1, -1, 0]] * 20, dtype="<i4")
    assert "holds token -1" in problems_of(indexed_job(prefix))


def test_without_a_tokenizer_something_must_say_how_large_the_vocabulary_is(prefix):
    assert "model.vocab_size=N" in problems_of(indexed_job(prefix, overrides={"model.vocab_size": None}))
    assert prepare(indexed_job(prefix)).vocab_size == VOCABULARY
    assert prepare(indexed_job(prefix)).tokenizer_dir is None


def test_a_document_mask_needs_the_token_that_ends_a_document(tmp_path, prefix, tokenizer):
    assert "data.document_mask=false" in problems_of(indexed_job(prefix, overrides={"data.document_mask": True}))
    endless = write_tokenizer(tmp_path / "endless", end=None)
    assert "has no eos_token" in problems_of(indexed_job(prefix, endless))
    unclosed = write_indexed(tmp_path / "unclosed", [[5] * 20] * 20)
    assert "ends with the tokenizer's end token, 0" in problems_of(indexed_job(unclosed, tokenizer))
    assert check_data(indexed_job(unclosed, tokenizer, {"data.document_mask": False})) == []


def test_a_tokenizer_larger_than_the_model_is_refused(prefix, tokenizer):
    assert "rows cannot hold" in problems_of(indexed_job(prefix, tokenizer, {"model.vocab_size": 10}))


def test_a_part_too_small_for_one_sample_is_refused_with_its_size(tmp_path, prefix, tokenizer):
    tiny = write_indexed(tmp_path / "tiny", [[5] * 7 + [0]] * 2)
    with pytest.raises(UserError, match=r"train part of \S+tiny has 16 tokens in 2 documents\s+a sample needs 17"):
        prepare(indexed_job(["1", str(prefix), "1", str(tiny)], tokenizer))
    settings: dict[str, Any] = {"validation.enable": True, "training.seq_length": 8}
    with pytest.raises(UserError, match=r"validation part of \S+tiny has 0 tokens[\s\S]*data.validation_fraction"):
        prepare(indexed_job(["1", str(prefix), "1", str(tiny)], tokenizer, settings))


def test_the_corpus_is_known_by_its_indices_and_sizes_wherever_it_lies(tmp_path, prefix, tokenizer):
    first = prepare(indexed_job(prefix, tokenizer)).corpus_hash
    moved = write_indexed(tmp_path / "elsewhere" / "other", numbered_documents(50))
    assert prepare(indexed_job(moved, tokenizer)).corpus_hash == first
    changed = write_indexed(tmp_path / "changed", numbered_documents(51))
    assert prepare(indexed_job(changed, tokenizer)).corpus_hash != first


@pytest.mark.parametrize("fraction", [0.0, 1e-5, 0.01, 0.07, 0.1, 1 / 3, 0.5, 0.999])
@pytest.mark.parametrize("documents", [1, 10, 99, 12_345])
def test_documents_are_held_out_where_megatron_cuts(documents, fraction):
    matrix = convert_split_vector_to_split_matrix(parse_and_normalize_split(split_text(fraction)))
    for split, part in zip(("train", "validation"), matrix, strict=False):
        begin, end = (round(border * float(documents)) for border in (part or (1.0, 1.0)))
        assert documents_of_split(documents, split, fraction) == range(begin, end)  # type: ignore[arg-type]
    assert matrix[2] is None


def test_the_samples_of_an_indexed_data_set_are_not_opened_as_ours(prefix, tokenizer):
    job = indexed_job(prefix, tokenizer)
    with pytest.raises(ValueError, match="drawn by Megatron"):
        open_samples(prepare(job), job, "train")


def test_only_some_documents_of_a_large_set_are_read(tmp_path, tokenizer):
    documents = numbered_documents(900)
    documents[1][2] = VOCABULARY
    # Document 1 lies between the first and the next that is looked at.
    assert check_data(indexed_job(write_indexed(tmp_path / "a", documents), tokenizer)) == []
    assert np.fromfile(bin_file(tmp_path / "a"), dtype="<u2").max() == VOCABULARY
