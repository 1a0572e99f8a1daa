"""`--cfg job` through us against a bare Hydra app over the same groups, and where the time goes.

    python benchmarks/cfg_job.py [--rounds 9]

The bare app is ten lines: `@hydra.main` over a copy of our group files, with the schema's defaults as a YAML file, as a
bare app has no schema. Both run as processes, in turn; printed are the medians of the wall time and their ratio, and
the shares of ours: imports, composition by Hydra with its validation by us, and printing.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from primus_hydra.config.build import defaults_of
from primus_hydra.config.schema import JobConfig

BARE_APP = """\
import os, hydra
from omegaconf import OmegaConf
OmegaConf.register_new_resolver("env", lambda name, default=None: os.environ.get(name, default))

@hydra.main(version_base="1.3", config_path="conf", config_name="config")
def main(config):
    pass

main()
"""
OVERRIDES = ("platform=cpu", "model=llama3_8b", "optimizer.lr=1e-4")
SHARES = """\
import sys, time
began = time.perf_counter()
import hydra, hydra._internal.utils
hydra_import = time.perf_counter()
import primus_hydra.app
our_import = time.perf_counter()
from primus_hydra.config.compose import Request, compose
compose(Request(overrides=sys.argv[1:]))
composed = time.perf_counter()
print(hydra_import - began, our_import - hydra_import, composed - our_import)
"""


def main() -> None:
    """Run both in turn and print the ratio and the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        bare = [sys.executable, str(_bare_app(Path(folder))), *OVERRIDES, "--cfg", "job"]
        ours = [sys.executable, "-m", "primus_hydra", *OVERRIDES, "--cfg", "job"]
        times = [(_seconds(bare), _seconds(ours)) for _ in range(rounds + 1)][1:]
    bare_s, ours_s = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"--cfg job: ours {ours_s:.3f} s, bare Hydra {bare_s:.3f} s, ratio {ours_s / bare_s:.2f}")
    _print_shares(ours_s, rounds)


def _bare_app(folder: Path) -> Path:
    conf = folder / "conf"
    shutil.copytree(Path(__file__).parents[1] / "conf", conf, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    (conf / "schema.yaml").write_text(yaml.safe_dump(defaults_of(JobConfig), sort_keys=False))
    app = folder / "app.py"
    app.write_text(BARE_APP)
    return app


def _seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def _print_shares(total: float, rounds: int) -> None:
    python = statistics.median(_seconds([sys.executable, "-c", "pass"]) for _ in range(rounds))
    runs = [
        [float(word) for word in subprocess.check_output([sys.executable, "-c", SHARES, *OVERRIDES], text=True).split()]
        for _ in range(rounds)
    ]
    hydra_import, our_import, composing = (statistics.median(column) for column in zip(*runs, strict=True))
    rest = total - python - hydra_import - our_import - composing
    shares = {
        "starting Python": python,
        "importing Hydra": hydra_import,
        "importing ours": our_import,
        "composing": composing,
        "printing, and the end": rest,
    }
    for name, seconds in shares.items():
        print(f"  {name:<24} {seconds:.3f} s  {100 * seconds / total:3.0f} %")


if __name__ == "__main__":
    main()
