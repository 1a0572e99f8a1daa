"""`task=data` makes the very tokens that a run makes for itself, lists what it passes over, and can be stopped."""

import errno
import fcntl
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from primus_hydra.data import growing, token_files
from primus_hydra.data.corpus import open_corpus
from primus_hydra.data.megatron_index import bin_file, index_file, read_index
from primus_hydra.data.part_tokens import Encoder
from primus_hydra.data.parts import cut
from primus_hydra.data.prepare import open_order, open_samples, prepare_data
from primus_hydra.data.tokenizer import load_tokenizer
from primus_hydra.errors import HostError, UserError
from primus_hydra.tasks.data_prepare import prepare, unfinished
from tests.support import make_job
from tests.unit.tasks.data_support import (
    SMALL,
    children_of,
    is_alive,
    kill,
    manifest_of,
    options,
    text_job,
    texts,
    write_jsonl,
    write_words,
)

BAD = ("{broken", '{"txet": 1}', "[1]", '{"text": 7}')


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("PRIMUS_CACHE", str(folder))
    return folder


def write_every_format(folder: Path) -> list[Path]:
    made = [folder / name for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.zst", "d.parquet", "e.txt", "f.txt.zst")]
    write_jsonl(made[0], texts(200))
    plain = write_jsonl(folder / "plain", texts(60, first=200)).read_bytes()
    made[1].write_bytes(gzip.compress(plain))
    made[2].write_bytes(zstandard.compress(plain))
    pq.write_table(pa.table({"text": texts(60, first=300)}), made[3], row_group_size=9)
    made[4].write_text("A plain text.\n" * 30)
    made[5].write_bytes(zstandard.compress(b"A packed text.\n" * 30))
    return made


def samples_of(job, split):
    prepared = prepare_data(job, report=lambda line: None)
    samples = open_samples(prepared, job, split)
    order = open_order(samples, job, split)
    return [samples.sample(order.index(place)) for place in range(len(samples))]


def test_a_stream_gives_the_samples_of_the_text_itself_in_the_same_order(tmp_path):
    job = text_job(write_every_format(tmp_path))
    prepare(options(tmp_path / "made", workers=2), job)
    own = prepare_data(job, report=lambda line: None)
    streamed = make_job({"data.kind": "stream", "data.path": str(tmp_path / "made"), **SMALL})

    made = (tmp_path / "made" / "tokens.bin").read_bytes()
    assert made == (Path(own.tokens_dir) / "tokens.bin").read_bytes()
    for split in ("train", "validation"):
        pairs = list(zip(samples_of(job, split), samples_of(streamed, split), strict=True))
        assert len(pairs) > 3
        assert all(np.array_equal(a.inputs, b.inputs) and np.array_equal(a.positions, b.positions) for a, b in pairs)
    again = prepare_data(streamed, report=lambda line: None)
    assert (again.vocab_size, again.train_tokens, again.documents) == (300, own.train_tokens, own.documents)
    assert not unfinished(tmp_path / "made").exists()


def test_indexed_data_sets_hold_the_documents_of_each_split_once(tmp_path):
    job = text_job(write_jsonl(tmp_path / "a.jsonl", texts(200)))
    prepare(options(tmp_path / "made", format="megatron", splits=[8, 1, 1]), job)
    own = prepare_data(job, report=lambda line: None)

    offsets = np.fromfile(Path(own.tokens_dir) / "offsets.bin", dtype=np.int64)
    flat = np.fromfile(Path(own.tokens_dir) / "tokens.bin", dtype=np.uint16)
    all_documents = sorted(flat[a:b].tobytes() for a, b in pairwise(offsets))
    found = []
    for name, count in (("train", 160), ("valid", 20), ("test", 20)):
        index = read_index(index_file(tmp_path / "made" / name))
        tokens = np.fromfile(bin_file(tmp_path / "made" / name), dtype=index.dtype)
        assert index.documents == count
        firsts = index.pointers // 2
        found += [tokens[a : a + n].tobytes() for a, n in zip(firsts, index.lengths, strict=True)]
    assert sorted(found) == all_documents


def test_a_run_trains_and_validates_on_the_indexed_data_sets_that_were_made(tmp_path):
    job = text_job(write_jsonl(tmp_path / "a.jsonl", texts(200)))
    prepare(options(tmp_path / "made", format="megatron"), job)
    own = prepare_data(job, report=lambda line: None)
    made = tmp_path / "made"

    indexed = {"data.kind": "megatron", "data.path": str(made / "train"), "data.validation_path": str(made / "valid")}
    named = {"tokenizer.kind": "hf", "tokenizer.path": str(made / "tokenizer"), "validation.enable": True}
    prepared = prepare_data(make_job({**SMALL, **indexed, **named}), report=lambda line: None)

    assert (prepared.train_tokens, prepared.validation_tokens) == (own.train_tokens, own.validation_tokens)
    assert prepared.held_out.prefixes == (str(made / "valid"),)
    assert type(prepared).from_json(json.loads(json.dumps(prepared.to_json()))) == prepared


def test_bad_lines_are_passed_over_and_listed_with_their_place_and_change_no_token(tmp_path, capsys):
    tokenizer = write_words(tmp_path / "tokenizer")
    named = {"tokenizer.kind": "hf", "tokenizer.path": str(tokenizer)}
    bad = write_jsonl(tmp_path / "bad.jsonl", texts(100), bad=BAD)
    good = write_jsonl(tmp_path / "good.jsonl", texts(100))
    cut_off = tmp_path / "cut.jsonl.gz"
    cut_off.write_bytes(gzip.compress(os.urandom(9000).hex().encode())[:4000])
    prepare(options(tmp_path / "made"), text_job([bad, cut_off], named))
    prepare(options(tmp_path / "clean"), text_job(good, named))

    made = manifest_of(tmp_path / "made")
    listed = [json.loads(line) for line in (tmp_path / "made" / "problems.jsonl").read_text().splitlines()]
    assert [(fault["file"], fault["line"]) for fault in listed[:4]] == [(str(bad), n) for n in (11, 22, 33, 44)]
    assert [fault["reason"].split(":")[0] for fault in listed[:4]] == [
        "is not JSON",
        "has no field 'text'",
        "is not a JSON object but list",
        "field 'text' is int, not text",
    ]
    # However many parts a damaged file was cut into, it is one fault.
    assert [(fault["file"], fault["line"]) for fault in listed[4:]] == [(str(cut_off), None)]
    assert made.faults == 5
    assert (made.sources[0].documents, made.sources[0].faults) == (100, 4)
    assert (tmp_path / "made" / "tokens.bin").read_bytes() == (tmp_path / "clean" / "tokens.bin").read_bytes()
    assert f"passed over {bad}:11: is not JSON" in capsys.readouterr().err


def test_strict_fails_at_a_bad_line_and_what_was_finished_serves_a_tolerant_try(tmp_path, capsys):
    write_jsonl(tmp_path / "a.jsonl", texts(400), bad=BAD, every=100)
    named = {"tokenizer.kind": "hf", "tokenizer.path": str(write_words(tmp_path / "tokenizer"))}
    job = text_job(tmp_path / "a.jsonl", named)

    with pytest.raises(UserError, match=r"is not JSON[\s\S]*a\.jsonl:101"):
        prepare(options(tmp_path / "made", strict=True), job)
    assert not (tmp_path / "made").exists()
    prepare(options(tmp_path / "made"), job)

    assert manifest_of(tmp_path / "made").faults == 4
    assert "going on: " in capsys.readouterr().err


def test_a_text_of_which_nothing_can_be_used_is_refused_after_its_first_part(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", texts(500))
    named = {"tokenizer.kind": "hf", "tokenizer.path": str(write_words(tmp_path / "tokenizer"))}
    job = text_job(tmp_path / "a.jsonl", {"data.text_key": "body", **named})

    with pytest.raises(UserError, match=r"nothing that was read so far[\s\S]*has no field 'body'"):
        prepare(options(tmp_path / "made"), job)
    left = growing.Growing(unfinished(tmp_path / "made"))
    assert 1 <= left.grown.parts < len(left.plan.parts)


def command(tmp_path: Path) -> list[str]:
    words = [f"data.path={tmp_path}/a.jsonl", f"tokenizer.path={tmp_path}/tokenizer", f"task.output={tmp_path}/made"]
    return [sys.executable, "-m", "primus_hydra", "task=data", "data=text", "tokenizer=hf", *words, "task.workers=1"]


def until_parts(folder: Path, count: int, process: subprocess.Popen) -> None:
    end = time.monotonic() + 60
    while growing.Growing(folder).grown.parts < count:
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.002)


def test_a_preparation_that_is_interrupted_or_killed_goes_on_and_ends_with_the_same_tokens(tmp_path):
    write_jsonl(tmp_path / "a.jsonl", texts(2_400))
    write_words(tmp_path / "tokenizer")
    named = {"tokenizer.kind": "hf", "tokenizer.path": str(tmp_path / "tokenizer")}
    work, argv = unfinished(tmp_path / "made"), [*command(tmp_path), "task.part_mib=0.002"]

    interrupted = subprocess.Popen(argv, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    until_parts(work, 2, interrupted)
    interrupted.send_signal(signal.SIGINT)
    assert "finished and stay; the same command goes on" in interrupted.communicate(timeout=30)[1]
    assert interrupted.returncode == 130
    finished = growing.Growing(work).grown.parts
    killed = subprocess.Popen(argv, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until_parts(work, finished + 2, killed)
    workers = children_of(killed.pid)
    kill(killed.pid)
    killed.wait()
    end = time.monotonic() + 10
    while any(map(is_alive, workers)) and time.monotonic() < end:
        time.sleep(0.01)
    assert workers
    assert not any(map(is_alive, workers))
    assert not (tmp_path / "made").exists()
    assert not [*tmp_path.rglob("*.idx"), *tmp_path.rglob("tokens.bin.*")]

    # What a process that dies while it writes may leave: files that are longer than is counted, and half a part.
    for name in (growing.TOKENS, growing.OFFSETS, growing.OUTCOMES, growing.FAULTS):
        with (work / name).open("ab") as stream:
            stream.write(b"half")
    (work / ".part-000999.draft").mkdir()
    job = text_job(tmp_path / "a.jsonl", named)
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    prepare_again = prepare(options(tmp_path / "made", workers="auto"), job_of_the_command(tmp_path))

    assert int(ended.stderr.split("going on: ")[1].split(" ")[0]) >= finished + 2
    assert prepare_again == 0
    own = prepare_data(job, report=lambda line: None)
    assert (tmp_path / "made" / "tokens.bin").read_bytes() == (Path(own.tokens_dir) / "tokens.bin").read_bytes()
    assert not work.exists()


def job_of_the_command(tmp_path: Path):
    named = {"tokenizer.kind": "hf", "tokenizer.path": str(tmp_path / "tokenizer")}
    return text_job(tmp_path / "a.jsonl", {**named, "data.validation_fraction": 0.01})


@pytest.fixture
def small_job(tmp_path):
    named = {"tokenizer.kind": "hf", "tokenizer.path": str(write_words(tmp_path / "tokenizer"))}
    return text_job(write_jsonl(tmp_path / "a.jsonl", texts(100)), named)


def test_a_full_disk_is_a_host_error_and_the_same_command_goes_on(tmp_path, small_job, monkeypatch, capsys):
    through, calls = growing._through, []

    def full_after_some(stream):
        calls.append(stream)
        if len(calls) > 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        through(stream)

    monkeypatch.setattr(growing, "_through", full_after_some)
    with pytest.raises(HostError, match=r"No space left on device[\s\S]*make room and type the same command"):
        prepare(options(tmp_path / "made"), small_job)
    assert not (tmp_path / "made").exists()
    monkeypatch.setattr(growing, "_through", through)
    prepare(options(tmp_path / "made"), small_job)

    assert "stopped: " in (told := capsys.readouterr().err)
    assert "going on: " in told
    assert manifest_of(tmp_path / "made").documents == 100


def test_a_part_that_does_not_fit_leaves_nothing_behind(tmp_path, small_job, monkeypatch):
    corpus, tokenizer = open_corpus(small_job.data), load_tokenizer(Path(small_job.tokenizer.path))
    encoder = Encoder(corpus=corpus, tokenizer=tokenizer, settings=small_job.tokenizer)
    monkeypatch.setattr(token_files, "TOKENS_FILE", "/dev/full")

    with pytest.raises(OSError, match="No space left"):
        encoder.encode(cut(corpus.sources, 1000)[0], tmp_path / "work" / "part-000000", lambda *_: None)
    assert list((tmp_path / "work").iterdir()) == []


def test_an_output_of_something_else_is_refused_and_another_preparation_replaced_only_when_asked(tmp_path, small_job):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(UserError, match="holds files that no preparation has made"):
            prepare(options(tmp_path / "mine", overwrite=overwrite), small_job)
    prepare(options(tmp_path / "made"), small_job)
    before = (tmp_path / "made" / "data.json").stat().st_mtime_ns
    prepare(options(tmp_path / "made", part_mib=1.0), small_job)
    assert (tmp_path / "made" / "data.json").stat().st_mtime_ns == before

    with pytest.raises(UserError, match="another preparation"):
        prepare(options(tmp_path / "made", format="megatron"), small_job)
    prepare(options(tmp_path / "made", format="megatron", overwrite=True), small_job)
    assert manifest_of(tmp_path / "made").layout == "megatron"


def test_a_second_process_on_the_same_output_is_refused(tmp_path, small_job):
    work = unfinished(tmp_path / "made")
    work.mkdir()
    with (work / "lock").open("w") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process prepares made"):
            prepare(options(tmp_path / "made"), small_job)


@pytest.mark.parametrize("splits", [[1.0], [0.0, 1.0], [1, -1], [1, 1, 1, 1]])
def test_splits_that_cannot_be_are_refused(tmp_path, small_job, splits):
    with pytest.raises(UserError, match="two or three parts"):
        prepare(options(tmp_path / "made", splits=splits), small_job)


def test_data_that_are_tokens_already_are_refused(tmp_path):
    with pytest.raises(UserError, match="tokens already"):
        prepare(options(tmp_path / "made"), make_job({"data.kind": "mock"}))
