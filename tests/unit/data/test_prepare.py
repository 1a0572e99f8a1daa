import gzip
import json
import multiprocessing
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import primus_hydra
from primus_hydra.config.build import build
from primus_hydra.config.schema import DataConfig, TokenizerConfig
from primus_hydra.data import token_files
from primus_hydra.data.check import check_data
from primus_hydra.data.prepare import open_order, open_samples, prepare_data
from primus_hydra.data.prepared import PreparedData
from primus_hydra.data.tokenizer import load_tokenizer
from primus_hydra.errors import HostError, UserError
from tests.support import make_job
from tests.unit.data.support import prepare, text_job


def write_txt(folder: Path, prose: str) -> Path:
    (folder / "a.txt").write_text(prose)
    return folder / "a.txt"


def write_txt_gz(folder: Path, prose: str) -> Path:
    (folder / "a.txt.gz").write_bytes(gzip.compress(prose.encode()))
    return folder / "a.txt.gz"


def write_jsonl(folder: Path, prose: str) -> Path:
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in prose.splitlines()))
    return folder / "a.jsonl"


def write_jsonl_gz(folder: Path, prose: str) -> Path:
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(write_jsonl(folder, prose).read_bytes()))
    return folder / "a.jsonl.gz"


def write_parquet(folder: Path, prose: str) -> Path:
    pq.write_table(pa.table({"text": prose.splitlines()}), folder / "a.parquet")
    return folder / "a.parquet"


def decoded(prepared: PreparedData) -> str:
    tokens = np.fromfile(Path(prepared.tokens_dir or "") / "tokens.bin", dtype=np.uint16)
    return load_tokenizer(Path(prepared.tokenizer_dir or "")).model.decode(tokens.tolist())


@pytest.mark.parametrize("write", [write_txt, write_txt_gz, write_jsonl, write_jsonl_gz, write_parquet])
def test_each_format_of_the_users_text_becomes_samples_of_that_text(tmp_path, prose, write):
    job = text_job(write(tmp_path, prose))
    assert check_data(job) == []
    prepared = prepare(job)
    assert decoded(prepared).replace("\n", "") == prose.replace("\n", "")
    samples = open_samples(prepared, job, "train")
    assert len(samples) == len(open_samples(PreparedData.from_json(prepared.to_json()), job, "train")) > 50
    sample = samples.sample(open_order(samples, job, "train").index(0))
    assert sample.inputs.max() < prepared.vocab_size == 300
    assert len(open_samples(prepared, job, "validation")) >= 1


def test_the_cache_is_used_again_and_follows_content_not_place(tmp_path, prose):
    lines: list[str] = []
    first = prepare(text_job(write_txt(tmp_path, prose)), lines)
    assert [line.split(":")[0] for line in lines] == ["corpus", "tokenizer", "tokens"]
    (tmp_path / "elsewhere").mkdir()
    lines.clear()
    assert prepare(text_job(write_txt(tmp_path / "elsewhere", prose)), lines) == first
    assert lines == []


def test_a_changed_text_or_setting_gives_other_tokens(tmp_path, prose):
    file = write_txt(tmp_path, prose)
    first = prepare(text_job(file))
    assert prepare(text_job(file, {"tokenizer.eos": False})).tokens_dir != first.tokens_dir
    assert prepare(text_job(file, {"tokenizer.vocab_size": 290})).tokenizer_dir != first.tokenizer_dir
    file.write_text(prose.replace("model", "modal"))
    assert prepare(text_job(file)).corpus_hash != first.corpus_hash


def test_two_fractions_share_the_tokens(tmp_path, prose):
    file = write_jsonl(tmp_path, prose)
    less, more = (prepare(text_job(file, {"data.validation_fraction": part})) for part in (0.02, 0.2))
    assert less.tokens_dir == more.tokens_dir
    assert 0 < less.validation_tokens < more.validation_tokens
    assert less.train_tokens + less.validation_tokens == more.train_tokens + more.validation_tokens


@pytest.mark.parametrize("name", ["tokens.bin", "offsets.bin", "meta.json", "split-0.01/train.pairs.bin"])
def test_a_truncated_cache_is_rebuilt(tmp_path, prose, name):
    job = text_job(write_txt(tmp_path, prose))
    prepared = prepare(job)
    file = Path(prepared.tokens_dir or "") / name
    whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    lines: list[str] = []
    assert prepare(job, lines) == prepared
    assert any("damaged" in line for line in lines)
    assert file.read_bytes() == whole


def test_a_damaged_tokenizer_in_the_cache_is_trained_again(tmp_path, prose):
    job = text_job(write_txt(tmp_path, prose))
    prepared = prepare(job)
    file = Path(prepared.tokenizer_dir or "") / "tokenizer.json"
    file.write_text(file.read_text()[:100])
    assert prepare(job) == prepared


def prepare_in_process(job, start, told):
    start.wait()
    lines: list[str] = []
    prepared = prepare_data(job, report=lines.append)
    told.put((prepared, sum(line.startswith("tokens:") for line in lines)))


def test_two_builders_at_once_encode_once_and_agree(tmp_path, prose):
    # Started afresh, not forked: the tokenizer's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    start, told = context.Barrier(2), context.Queue()
    job = text_job(write_txt(tmp_path, prose * 20))
    processes = [context.Process(target=prepare_in_process, args=(job, start, told)) for _ in range(2)]
    for process in processes:
        process.start()
    answers = [told.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(timeout=60)
    assert answers[0][0] == answers[1][0]
    assert sum(encoded for _, encoded in answers) == 1


def test_a_full_disk_is_a_host_error_and_leaves_no_half_cache(tmp_path, prose, monkeypatch, cache):
    monkeypatch.setattr(token_files, "TOKENS_FILE", "/dev/full")
    with pytest.raises(HostError, match="No space left on device"):
        prepare(text_job(write_txt(tmp_path, prose)))
    assert [entry.name for entry in (cache / "tokens").iterdir() if not entry.name.endswith(".lock")] == []


def test_problems_of_all_files_are_gathered_before_anything_is_built(tmp_path, prose, cache):
    write_txt(tmp_path, prose)
    (tmp_path / "b.txt").write_bytes(prose.encode() + b"\0")
    (tmp_path / "c.jsonl").write_text('{"text": "fine"}\n' * 10 + "broken\n")
    with pytest.raises(UserError) as caught:
        prepare(text_job(tmp_path))
    assert [Path(str(problem.where)).name for problem in caught.value.problems] == ["b.txt", "c.jsonl:11"]
    assert not (cache / "tokens").exists()


def test_the_quick_check_sees_bad_first_records_and_missing_files_together(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"content": "x"}\n')
    problems = check_data(text_job([str(tmp_path / "a.jsonl"), str(tmp_path / "gone.txt")]))
    assert ["does not exist" in problem.what for problem in problems] == [True, False]
    assert "it has: content" in str(problems[1].hint)


def test_a_text_shorter_than_one_sample_is_a_user_error(tmp_path):
    (tmp_path / "a.txt").write_text("a few words")
    with pytest.raises(UserError, match=r"fewer than one sample of 512[\s\S]*training.seq_length="):
        prepare(text_job(tmp_path / "a.txt", {"training.seq_length": 512}))


def test_a_validation_part_shorter_than_one_sample_matters_only_when_validation_is_on(tmp_path, prose):
    settings = {"training.seq_length": 512, "data.validation_fraction": 0.001}
    file = write_txt(tmp_path, prose)
    prepare(text_job(file, settings))
    with pytest.raises(UserError, match=r"the validation part has[\s\S]*validation_fraction"):
        prepare(text_job(file, {**settings, "validation.enable": True}))


def test_validation_without_held_out_documents_is_a_problem(tmp_path, prose):
    job = text_job(write_txt(tmp_path, prose), {"validation.enable": True, "data.validation_fraction": 0.0})
    assert [problem.key for problem in check_data(job)] == ["data.validation_fraction"]


def test_a_blank_text_is_a_user_error(tmp_path):
    (tmp_path / "a.txt").write_text(" \n\n")
    with pytest.raises(UserError, match="only blank documents"):
        prepare(text_job(tmp_path / "a.txt"))


def test_parquet_without_pyarrow_is_a_host_error_with_the_install_command(tmp_path, prose, monkeypatch):
    job = text_job(write_parquet(tmp_path, prose))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert check_data(job) == []
    with pytest.raises(HostError, match=r'pip install "primus-hydra\[parquet\]"'):
        prepare(job)


def test_a_node_that_does_not_see_the_tokens_is_told_to_share_the_cache(tmp_path, prose):
    job = text_job(write_txt(tmp_path, prose))
    prepared = prepare(job)
    Path(prepared.tokens_dir or "").rename(tmp_path / "moved")
    with pytest.raises(HostError, match="PRIMUS_CACHE"):
        open_samples(prepared, job, "train")


def test_mock_data_needs_no_files_and_takes_the_models_vocabulary(cache):
    job = make_job({"data.kind": "mock", "model.vocab_size": 17})
    prepared = prepare(job)
    samples = open_samples(prepared, job, "train")
    sample = samples.sample(open_order(samples, job, "train").index(5))
    assert (prepared.vocab_size, prepared.tokens_dir, len(sample.inputs)) == (17, None, 64)
    assert sample.inputs.max() < 17
    assert sample.inputs.tolist() != open_samples(prepared, job, "validation").sample(5).inputs.tolist()
    assert list(cache.iterdir()) == []
    assert prepare(make_job({"data.kind": "mock"})).vocab_size == 4096


def test_preparing_data_imports_no_torch(tmp_path, prose):
    code = "import sys, primus_hydra.data.prepare, primus_hydra.data.check; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("group", "schema", "names"),
    [
        ("data", DataConfig, ["hf", "megatron", "mock", "python_stdlib", "stream", "text"]),
        ("tokenizer", TokenizerConfig, ["bpe", "hf"]),
    ],
)
def test_the_configuration_files_fit_the_schema_and_say_what_they_are_for(group, schema, names):
    folder = Path(primus_hydra.__file__).parent / "conf" / group
    files = sorted(folder.glob("*.yaml"))
    assert [file.stem for file in files] == names
    for file in files:
        assert file.read_text().startswith("# ")
        built, problems = build(schema, yaml.safe_load(file.read_text()), prefix=group)
        assert problems == []
        assert built.kind == file.stem
