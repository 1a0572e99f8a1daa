"""What `task=data` shows and counts is what a rank reads and what the files hold."""

import json
from pathlib import Path

import pytest

from primus_hydra.config.compose import Request, compose
from primus_hydra.config.layout import layout_of
from primus_hydra.data.order import batch_indices
from primus_hydra.data.prepare import open_order, open_samples, prepare_data
from primus_hydra.errors import UserError
from primus_hydra.tasks.data_count import count
from primus_hydra.tasks.data_prepare import prepare, unfinished
from primus_hydra.tasks.data_show import show
from tests.support import make_job
from tests.unit.data.indexed import indexed_job, numbered_documents, write_indexed, write_tokenizer
from tests.unit.tasks.data_support import SMALL, options, text_job, texts, write_jsonl, write_words


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRIMUS_CACHE", str(folder / "cache"))
        for name, first in (("a", 0), ("b", 500)):
            tokenizer = {"tokenizer.kind": "hf", "tokenizer.path": str(write_words(folder / "words"))}
            job = text_job(write_jsonl(folder / f"{name}.jsonl", texts(150, first=first)), tokenizer)
            prepare(options(folder / name, splits=[0.8, 0.1, 0.1]), job)
    return folder


def shown(capsys, job, **values):
    capsys.readouterr()
    show(options(action="show", **values), job)
    return json.loads(capsys.readouterr().out)


def stream_job(path, overrides=None):
    return make_job({"data.kind": "stream", "data.path": path, **SMALL, **(overrides or {})})


def test_the_samples_shown_are_those_that_the_rank_reads_which_is_named(prepared, capsys):
    job = stream_job(str(prepared / "a"), {"parallel.dp_shard": 2, "training.global_batch_size": 4})
    layout, _ = layout_of(job)
    data = prepare_data(job, report=lambda line: None)
    samples = open_samples(data, job, "train")
    order = open_order(samples, job, "train")

    for one in shown(capsys, job, first=3, samples=6, tokens=0):
        words = dict(zip("position step microbatch rank sample".split(), numbers(one["what"]), strict=True))  # noqa: SIM905
        read = batch_indices(
            order,
            layout,
            consumed_samples=(words["step"] - 1) * 4,
            dp_rank=words["rank"],
            microbatch=words["microbatch"],
        )
        assert words["sample"] in read
        sample = samples.sample(words["sample"])
        ids = [number for stretch in one["stretches"] for number in stretch["ids"]]
        assert ids == [*sample.inputs.tolist(), sample.labels[-1]]
        assert [stretch["first"] for stretch in one["stretches"]] == [
            i for i, p in enumerate(sample.positions) if p == 0
        ]


def numbers(text: str) -> list[int]:
    return [int(word) for word in "".join(c if c.isdigit() else " " for c in text).split()]


def test_the_text_shown_is_that_of_the_ids_and_a_test_part_can_be_shown(prepared, capsys):
    found = shown(capsys, make_job(SMALL), path=str(prepared / "a"), split="test", samples=2, tokens=5)

    assert [len(one["stretches"][0]["ids"]) for one in found] == [5, 5]
    assert found[0]["stretches"][0]["text"].startswith("The model reads text")
    show(options(action="show", path=str(prepared / "a"), samples=1, tokens=5, report="text"), make_job(SMALL))
    assert "tokens more" in capsys.readouterr().out


def test_documents_of_an_indexed_data_set_are_shown_with_the_tokenizer_that_is_named(tmp_path, capsys):
    prefix = write_indexed(tmp_path / "set", numbered_documents(20))
    job = indexed_job(prefix, write_tokenizer(tmp_path / "tokenizer"))

    other = write_indexed(tmp_path / "elsewhere" / "set", numbered_documents(20))
    named = shown(capsys, make_job(SMALL), path=str(other), first=4, samples=1)
    own = shown(capsys, job, split="validation", samples=5, tokens=2)

    assert named[0]["stretches"][0]["ids"] == [5] * 10 + [0]
    assert named[0]["stretches"][0]["text"] is None
    assert [one["stretches"][0]["text"] for one in own] == ["t19 t19", "t20 t20"]


def test_counts_are_those_of_each_file_with_and_without_encoding_it(prepared, monkeypatch, capsys):
    monkeypatch.setenv("PRIMUS_CACHE", str(prepared / "cache"))
    tokenizer = {"tokenizer.kind": "hf", "tokenizer.path": str(prepared / "words")}
    job = text_job([prepared / "a.jsonl", prepared / "b.jsonl"], tokenizer)

    count(options(action="count"), job)
    encoded = json.loads(capsys.readouterr().out)
    count(options(action="count"), stream_job([str(prepared / "a"), str(prepared / "b")]))
    assert json.loads(capsys.readouterr().out) == encoded
    assert [one["documents"] for one in encoded] == [150, 150]
    count(options(action="count", path=str(prepared / "a" / "tokens")), job)
    assert json.loads(capsys.readouterr().out)[0]["tokens"] == encoded[0]["tokens"]
    count(options(action="count", path=str(prepared / "a"), report="text"), job)
    assert capsys.readouterr().out.splitlines()[-1].split()[:2] == ["150", f"{encoded[0]['tokens']:,}"]


def test_a_blend_of_folders_takes_their_samples_by_weight(prepared, capsys):
    job = stream_job(["0.75", str(prepared / "a"), "0.25", str(prepared / "b")])
    data = prepare_data(job, report=lambda line: None)
    samples = open_samples(data, job, "train")
    order = open_order(samples, job, "train")

    drawn = [samples.set_of(order.index(position)) for position in range(400)]

    assert (drawn.count(0), drawn.count(1)) == (300, 100)
    assert len(open_samples(data, job, "validation")) > 2
    assert len(shown(capsys, job, samples=2)) == 2


def test_folders_that_cannot_be_trained_on_are_refused_with_the_reason(prepared, tmp_path):
    unfinished(tmp_path / "soon").mkdir()
    (tmp_path / "torn").mkdir()
    for file in (prepared / "a").glob("*.*"):
        (tmp_path / "torn" / file.name).write_bytes(file.read_bytes()[:-1])
    other = write_tokenizer(tmp_path / "other", size=7)
    cases = {
        r"is not finished: type the same": stream_job(str(tmp_path / "soon")),
        r"not a whole one": stream_job(str(tmp_path / "torn")),
        r"was made with another tokenizer": stream_job(
            str(prepared / "a"), {"tokenizer.kind": "hf", "tokenizer.path": str(other)}
        ),
        r"is less than": stream_job(["1", str(prepared / "a"), "0.000001", str(prepared / "b")]),
        r"needs the folder that task=data has prepared": stream_job([]),
        r"rows cannot hold": stream_job(str(prepared / "a"), {"model.vocab_size": 20}),
    }
    for reason, job in cases.items():
        with pytest.raises(UserError, match=reason):
            prepare_data(job, report=lambda line: None)


def test_a_path_that_holds_no_data_is_refused(tmp_path):
    with pytest.raises(UserError, match="neither a whole prepared folder"):
        show(options(action="show", path=str(tmp_path)), make_job(SMALL))


def test_paths_of_a_blend_count_from_the_folder_of_the_command_and_weights_stay_numbers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stream = compose(Request(overrides=["data=stream", "data.path=[0.7,a,0.3,/b]"])).job.data
    indexed = compose(Request(overrides=["data=megatron", "data.path=a", "data.validation_path=[1,b,2,c]"])).job.data

    assert stream.path == ["0.7", f"{tmp_path}/a", "0.3", "/b"]
    assert indexed.validation_path == ["1", f"{tmp_path}/b", "2", f"{tmp_path}/c"]
