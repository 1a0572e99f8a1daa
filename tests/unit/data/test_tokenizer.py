import json
from pathlib import Path

import pytest

from primus_hydra.config.schema import TokenizerConfig
from primus_hydra.data.bpe import BOS, EOS, train_bpe, training_texts
from primus_hydra.data.corpus import Corpus, SourceSize
from primus_hydra.data.source import WHOLE, Source
from primus_hydra.data.tokenizer import check_tokenizer, load_tokenizer, tokenizer_vocab_size
from primus_hydra.errors import UserError
from tests.support import make_job


def corpus_of(*sources: list[str]) -> tuple[Corpus, list[SourceSize]]:
    made = [
        Source(name=str(number), read=lambda log, *, window=WHOLE, texts=texts: iter(texts))
        for number, texts in enumerate(sources)
    ]
    sizes = [SourceSize(documents=len(texts), text_bytes=sum(map(len, texts))) for texts in sources]
    return Corpus(sources=tuple(made), files=(), settings=()), sizes


def trained(folder: Path, text: str, **settings) -> Path:
    folder.mkdir(exist_ok=True)
    train_bpe(folder, *corpus_of([text]), TokenizerConfig(**{"vocab_size": 300, **settings}))
    return folder


def hf_job(path: Path, **overrides):
    return make_job({"tokenizer.kind": "hf", "tokenizer.path": str(path), **overrides})


def test_any_text_survives_encoding_and_decoding(tmp_path, prose):
    tokenizer = load_tokenizer(trained(tmp_path, prose))
    text = "unseen: żółć 🦙 \t\r\n\x07 日本"
    (ids,) = tokenizer.encode([text], bos=True, eos=True)
    assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id) == (0, 1)
    assert tokenizer.model.decode(ids.tolist()) == text
    assert tokenizer.vocab_size == 300


def test_begin_and_end_tokens_can_be_left_out(tmp_path, prose):
    tokenizer = load_tokenizer(trained(tmp_path, prose))
    (bare,) = tokenizer.encode(["the model"], bos=False, eos=False)
    assert not {tokenizer.bos_id, tokenizer.eos_id} & set(bare.tolist())


def test_training_twice_gives_the_same_file(tmp_path, prose):
    first, second = (trained(tmp_path / name, prose) / "tokenizer.json" for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_a_text_too_small_for_the_vocabulary_gives_fewer_tokens(tmp_path):
    tokenizer = load_tokenizer(trained(tmp_path, "tiny", vocab_size=4096))
    assert 258 <= tokenizer.vocab_size < 4096


@pytest.mark.parametrize("bos", [True, False])
def test_transformers_loads_the_folder(tmp_path, prose, bos):
    from transformers import AutoTokenizer

    folder = trained(tmp_path, prose, bos=bos)
    theirs = AutoTokenizer.from_pretrained(str(folder))
    ours = load_tokenizer(folder)
    assert (theirs.bos_token, theirs.eos_token, theirs.bos_token_id, theirs.eos_token_id) == (BOS, EOS, 0, 1)
    assert (
        theirs("the model learns")["input_ids"] == next(ours.encode(["the model learns"], bos=bos, eos=False)).tolist()
    )
    assert theirs.decode(theirs("für 日本")["input_ids"], skip_special_tokens=True) == "für 日本"


def test_torchtitan_loads_the_folder_and_encodes_as_we_do(tmp_path, prose):
    from torchtitan.components.tokenizer import HuggingFaceTokenizer

    folder = trained(tmp_path, prose)
    theirs, ours = HuggingFaceTokenizer(tokenizer_path=str(folder)), load_tokenizer(folder)
    text = "the model learns 日本"
    assert theirs.encode(text, add_bos=True, add_eos=True) == next(ours.encode([text], bos=True, eos=True)).tolist()
    assert (theirs.bos_id, theirs.eos_id, theirs.get_vocab_size()) == (ours.bos_id, ours.eos_id, ours.vocab_size)


def test_training_text_comes_from_all_over_a_large_corpus():
    sources = [[f"{number:03d}" * 100] for number in range(300)]
    texts = list(training_texts(*corpus_of(*sources), budget=6000))
    numbers = [int(text[:3]) for text in texts]
    assert 5000 <= sum(map(len, texts)) <= 7000
    assert numbers == sorted(numbers)
    assert len(numbers) >= 40
    assert numbers[0] < 10
    assert numbers[-1] > 290


def test_of_a_source_with_many_documents_every_nth_is_taken():
    documents = [f"{number:04d}" * 5 for number in range(1000)]
    texts = list(training_texts(*corpus_of(documents), budget=2000))
    assert [int(text[:4]) for text in texts] == list(range(0, 1000, 10))


def test_a_corpus_within_the_budget_is_used_whole():
    assert list(training_texts(*corpus_of(["a", "b"], ["c"]), budget=3)) == ["a", "b", "c"]


def test_a_tokenizer_on_disk_tells_its_vocabulary_and_special_tokens(tmp_path, prose):
    folder = trained(tmp_path, prose)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps({**config, "bos_token": None, "eos_token": {"content": EOS}})
    )
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.bos_id, tokenizer.eos_id) == (None, 1)
    assert tokenizer_vocab_size(hf_job(folder)) == 300
    assert tokenizer_vocab_size(hf_job(folder / "tokenizer.json")) == 300


def test_special_tokens_map_fills_in_for_a_missing_config(tmp_path, prose):
    folder = trained(tmp_path, prose)
    (folder / "tokenizer_config.json").unlink()
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": EOS}))
    assert load_tokenizer(folder).eos_id == 1
    assert load_tokenizer(folder).bos_id is None


def test_a_trained_tokenizer_tells_its_vocabulary_before_training():
    assert tokenizer_vocab_size(make_job({"tokenizer.vocab_size": 1234})) == 1234


def test_a_tokenizer_larger_than_the_embedding_is_a_problem(tmp_path, prose):
    folder = trained(tmp_path, prose)
    assert check_tokenizer(hf_job(folder, **{"model.vocab_size": 300})) == []
    (problem,) = check_tokenizer(hf_job(folder, **{"model.vocab_size": 299}))
    assert (problem.key, problem.what) == ("model.vocab_size", "299 rows cannot hold the 300 tokens of the tokenizer")


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("tokenizer.json", None, "no tokenizer.json in it"),
        ("tokenizer.json", "{half", "not a tokenizer that can be read"),
        ("tokenizer_config.json", "{half", "cannot be read as JSON"),
        ("tokenizer_config.json", '{"bos_token": "<s>"}', "bos_token '<s>' is not in the vocabulary"),
    ],
)
def test_a_damaged_tokenizer_is_a_problem_that_names_the_file(tmp_path, prose, name, content, what):
    folder = trained(tmp_path, prose)
    (folder / name).unlink() if content is None else (folder / name).write_text(content)
    (problem,) = check_tokenizer(hf_job(folder))
    assert what in problem.what


def test_a_tokenizer_without_a_folder_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match=r"set tokenizer\.path=FOLDER"):
        tokenizer_vocab_size(make_job({"tokenizer.kind": "hf"}))
    with pytest.raises(UserError, match="no such folder"):
        tokenizer_vocab_size(hf_job(tmp_path / "gone"))
