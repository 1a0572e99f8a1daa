import json
import subprocess
import sys

import datasets
import pytest

from primus_hydra.data.check import check_data
from primus_hydra.data.prepare import open_samples
from primus_hydra.errors import HostError, UserError
from tests.support import make_job
from tests.unit.data.support import SMALL, prepare


@pytest.fixture(autouse=True)
def hf_home(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("hf")))


def hf_job(path, **overrides):
    return make_job({"data.kind": "hf", "data.path": str(path), **SMALL, **overrides})


def rows(prose: str) -> dict[str, list[str | None]]:
    return {"text": [*prose.splitlines(), None], "other": ["x"] * (prose.count("\n") + 1)}


def write_jsonl(path, prose: str) -> None:
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in prose.splitlines()))


def save_table(folder, prose):
    datasets.Dataset.from_dict(rows(prose)).save_to_disk(folder)


def save_splits(folder, prose):
    table = datasets.Dataset.from_dict(rows(prose))
    datasets.DatasetDict({"train": table, "test": table.select(range(5))}).save_to_disk(folder)


def save_parquet(folder, prose):
    datasets.Dataset.from_dict(rows(prose)).to_parquet(folder / "train-00000-of-00001.parquet")


def save_jsonl(folder, prose):
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", prose)
    write_jsonl(folder / "test.jsonl", "other\n")


def save_arrow(folder, prose):
    save_table(folder.with_name("saved"), prose)
    folder.mkdir()
    next(folder.with_name("saved").glob("*.arrow")).rename(folder / "train.arrow")


SAVES = [save_table, save_splits, save_parquet, save_jsonl, save_arrow]


@pytest.mark.parametrize("save", SAVES)
def test_a_data_set_on_disk_becomes_tokens(tmp_path, prose, save):
    save(tmp_path / "set", prose)
    job = hf_job(tmp_path / "set")
    assert check_data(job) == []
    prepared = prepare(job)
    assert prepared.documents == 300
    assert len(open_samples(prepared, job, "train")) > 50


def test_every_kind_of_folder_gives_the_same_tokens(tmp_path, prose):
    counts = []
    for number, save in enumerate(SAVES):
        save(tmp_path / str(number), prose)
        prepared = prepare(hf_job(tmp_path / str(number)))
        counts.append((prepared.train_tokens, prepared.validation_tokens))
    assert len(set(counts)) == 1


@pytest.mark.parametrize("save", [save_splits, save_jsonl])
def test_a_missing_split_names_those_there(tmp_path, prose, save):
    save(tmp_path / "set", prose)
    with pytest.raises(UserError, match="no split 'tets'") as caught:
        prepare(hf_job(tmp_path / "set", **{"data.split": "tets"}))
    assert "did you mean test?" in str(caught.value)


@pytest.mark.parametrize("save", SAVES)
def test_a_missing_column_names_those_there(tmp_path, prose, save):
    save(tmp_path / "set", prose)
    with pytest.raises(UserError, match=r"no (column|field) 'texts'") as caught:
        prepare(hf_job(tmp_path / "set", **{"data.text_key": "texts"}))
    assert "did you mean text?" in str(caught.value)


def test_a_column_of_numbers_is_a_user_error(tmp_path):
    datasets.Dataset.from_dict({"text": [1, 2, 3]}).save_to_disk(tmp_path / "set")
    with pytest.raises(UserError, match="holds int, not text"):
        prepare(hf_job(tmp_path / "set"))


def test_a_damaged_data_set_is_a_user_error(tmp_path, prose):
    save_table(tmp_path / "set", prose)
    file = next((tmp_path / "set").glob("*.arrow"))
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(UserError, match="not a data set that can be read"):
        prepare(hf_job(tmp_path / "set"))


def test_a_name_on_the_hub_is_refused_with_the_command_that_fetches_it():
    (problem,) = check_data(hf_job("allenai/c4"))
    assert "hf download --repo-type dataset allenai/c4" in str(problem.hint)


@pytest.mark.parametrize("save", [save_splits, save_jsonl])
def test_reading_a_data_set_imports_no_torch(tmp_path, prose, save):
    save(tmp_path / "set", prose)
    code = (
        "import sys\n"
        "from primus_hydra.config.schema import DataConfig\n"
        "from primus_hydra.data.corpus import open_corpus, scan\n"
        f"corpus = open_corpus(DataConfig(kind='hf', path={str(tmp_path / 'set')!r}))\n"
        "print(sum(size.documents for size in scan(corpus)))\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "300\n")


def test_an_empty_folder_is_a_problem(tmp_path):
    (problem,) = check_data(hf_job(tmp_path))
    assert "holds no data set" in problem.what


def test_without_the_library_the_install_command_is_named(tmp_path, prose, monkeypatch):
    save_jsonl(tmp_path / "set", prose)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(HostError, match=r'pip install "primus-hydra\[hf\]"'):
        prepare(hf_job(tmp_path / "set"))
