"""Seconds from a JSONL file to tokens on disk: `task=data`, and `map` of the `datasets` library, on the same file.

    python benchmarks/data_prepare.py [--mib 200] [--workers 2] [--rounds 3]

The file is generated: documents of 200 to 20,000 characters out of the source of Python's standard library. Both use
the same byte-level BPE tokenizer and number of processes, and close each document with the same end token. Ours is the
real command: composed, checked, the file hashed, encoded, written and synced, with its index and splits. The other is
a process of its own that loads the file (`load_dataset("json")`) and maps it in batches over `num_proc` processes,
whose result is an Arrow file; the time of `map` alone is shown too. They run in turn, so that a busy machine hits both
alike. The medians, their ratios, MB of text a second, and the number of tokens (which must be the same) are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from primus_hydra.data.stdlib_modules import stdlib_files, stdlib_root  # noqa: E402  (the line above makes it known)

END = "<|end|>"
THEIRS = """
import json, sys, time
import datasets, tokenizers
file, folder, workers, cache = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
datasets.disable_progress_bars()
tokenizer = tokenizers.Tokenizer.from_file(folder + "/tokenizer.json")
end = tokenizer.token_to_id("<|end|>")
def encode(batch):
    found = tokenizer.encode_batch_fast(batch["text"], add_special_tokens=False)
    return {"ids": [[*one.ids, end] for one in found]}
table = datasets.load_dataset("json", data_files=file, split="train", cache_dir=cache)
began = time.monotonic()
made = table.map(encode, batched=True, num_proc=workers, remove_columns=table.column_names)
spent = time.monotonic() - began
tokens = sum(len(row) for batch in made.iter(1000) for row in batch["ids"]) if sys.argv[5] == "count" else 0
print(json.dumps({"map_s": spent, "tokens": tokens}))
"""


@dataclass(frozen=True, kw_only=True)
class Round:
    """Seconds of one round: ours, theirs as a whole, and their map alone."""

    ours: float
    theirs: float
    their_map: float


def main() -> None:
    """Run both in turn and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, default=200.0, help="size of the file")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), arguments.mib, arguments.workers)
        counted = bench.tokens_of_both()
        rounds = [bench.round() for _ in range(arguments.rounds)]
    report(rounds, arguments.mib * 2**20 / 1e6, arguments.workers, counted)


class Bench:
    """A file, a tokenizer, and both ways to make tokens of it."""

    def __init__(self, folder: Path, mib: float, workers: int) -> None:
        self._folder = folder
        self._workers = workers
        self._file = folder / "text.jsonl"
        self._count = 0
        documents = list(_documents(int(mib * 2**20)))
        self._file.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
        _write_tokenizer(folder / "tokenizer", documents[:400])

    def round(self) -> Round:
        """Run both once."""
        began = time.monotonic()
        self._ours()
        ours = time.monotonic() - began
        began = time.monotonic()
        said = self._theirs("time")
        return Round(ours=ours, theirs=time.monotonic() - began, their_map=float(said["map_s"]))

    def tokens_of_both(self) -> int:
        """Return the tokens that both make; ends the benchmark if they differ. Warms the file up as well."""
        ours, theirs = int(self._ours()["tokens"]), int(self._theirs("count")["tokens"])
        if ours != theirs:
            raise SystemExit(f"ours are {ours:,} tokens, and theirs {theirs:,}")
        return ours

    def _ours(self) -> dict[str, object]:
        words = ["task=data", "task.report=json", f"task.workers={self._workers}", "data=text", "tokenizer=hf"]
        words += [f"data.path={self._file}", f"tokenizer.path={self._folder}/tokenizer"]
        return self._run("-m", "primus_hydra", *words, f"task.output={self._new()}")

    def _theirs(self, what: str) -> dict[str, object]:
        folders = [str(self._file), str(self._folder / "tokenizer"), str(self._workers), str(self._new()), what]
        return self._run("-c", THEIRS, *folders)

    def _new(self) -> Path:
        self._count += 1
        return self._folder / f"made-{self._count}"

    def _run(self, *words: str) -> dict[str, object]:
        own = {"PRIMUS_CACHE": str(self._folder / f"cache-{self._count}"), "HF_HUB_OFFLINE": "1"}
        own |= {"HF_HOME": str(self._folder / "hf"), "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        argv = [sys.executable, *words]
        ended = subprocess.run(argv, cwd=ROOT, env={**os.environ, **own}, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise SystemExit(f"{' '.join(words[:3])}\n{ended.stdout}{ended.stderr}")
        said: dict[str, object] = json.loads(ended.stdout[ended.stdout.index("{") :])
        return said


def _documents(size: int) -> Iterator[str]:
    """Yield pieces of real source, shuffled, until their bytes are `size`; the same every time."""
    pick = random.Random(0)
    files, _ = stdlib_files(stdlib_root())
    texts = [text for file in files if len(text := file.read_text(errors="replace")) > 1000]
    while size > 0:
        text = pick.choice(texts)
        length = int(200 * 100 ** pick.random())
        first = pick.randrange(max(1, len(text) - length))
        piece = text[first : first + length]
        size -= len(json.dumps({"text": piece})) + 1
        yield piece


def _write_tokenizer(folder: Path, texts: Sequence[str]) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=8192, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END}))


def report(rounds: Sequence[Round], megabytes: float, workers: int, tokens: int) -> None:
    """Print the medians, and the medians of the ratios within a round."""
    ours, theirs, alone = (
        statistics.median(getattr(one, name) for one in rounds) for name in ("ours", "theirs", "their_map")
    )
    whole = statistics.median(one.theirs / one.ours for one in rounds)
    of_map = statistics.median(one.their_map / one.ours for one in rounds)
    print(f"{megabytes:.0f} MB of JSONL, {tokens:,} tokens, {workers} processes, {len(rounds)} rounds")
    print(f"  task=data           {ours:7.2f} s  {megabytes / ours:6.1f} MB/s")
    print(f"  datasets, load+map  {theirs:7.2f} s  {megabytes / theirs:6.1f} MB/s  {whole:.2f} of ours")
    print(f"  datasets, map alone {alone:7.2f} s  {megabytes / alone:6.1f} MB/s  {of_map:.2f} of ours", flush=True)


if __name__ == "__main__":
    main()
