import json
from pathlib import Path

import pytest

from primus_hydra.config.schema import DataConfig
from primus_hydra.data import check
from primus_hydra.data.corpus import open_corpus, scan
from primus_hydra.data.stdlib_modules import STDLIB_MODULES, stdlib_files, stdlib_root
from primus_hydra.errors import HostError
from tests.support import make_job
from tests.unit.data.support import prepare


def test_this_python_has_every_module_of_the_list():
    assert stdlib_files(stdlib_root())[1] == []


def test_the_corpus_is_several_megabytes_of_sorted_source_without_tests():
    corpus = open_corpus(DataConfig())
    assert sum(size.text_bytes for size in scan(corpus)) > 5e6
    names = [file.relative_to(stdlib_root()).as_posix() for file in corpus.files]
    assert names == sorted(names)
    assert not [name for name in names if "/test/" in name or "/tests/" in name or "sysconfigdata" in name]
    assert {"asyncio/base_events.py", "json/decoder.py", "typing.py"} <= set(names)


def test_a_stripped_standard_library_is_a_host_error_that_names_what_lacks(tmp_path, monkeypatch):
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "__init__.py").write_text("x = 1\n")
    monkeypatch.setattr(check, "stdlib_root", lambda: tmp_path)
    with pytest.raises(HostError, match=r"lacks the source of .*asyncio.*zoneinfo") as caught:
        prepare(make_job())
    assert " json" not in str(caught.value)
    assert "libpython3-stdlib" in str(caught.value)


def test_modules_that_some_versions_or_distributions_lack_are_not_in_the_list():
    moved = {"idlelib", "tkinter", "turtle", "ensurepip", "lib2to3", "distutils", "imp", "cgi", "venv", "test"}
    assert not moved & set(STDLIB_MODULES)


def test_the_corpus_hash_stands_in_the_prepared_data_and_in_the_cache(tmp_path, monkeypatch):
    for name in STDLIB_MODULES:
        (tmp_path / f"{name}.py").write_text(f"def {name}(value):\n    return value + 1\n" * 20)
    monkeypatch.setattr("primus_hydra.data.corpus.stdlib_root", lambda: tmp_path)
    monkeypatch.setattr(check, "stdlib_root", lambda: tmp_path)
    prepared = prepare(make_job({"tokenizer.vocab_size": 300}))
    meta = json.loads(Path(str(prepared.tokens_dir), "meta.json").read_text())
    assert meta["corpus_hash"] == prepared.corpus_hash
    assert len(meta["files"]) == prepared.documents == len(STDLIB_MODULES)
