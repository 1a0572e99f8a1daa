"""What no rank needs before its first step is not imported by a start, with the real backends on a processor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = (
    "datasets",
    "matplotlib",
    "networkx",
    "pandas",
    "pyarrow",
    "tensorboard",
    "torch._inductor.compile_fx",
    "torchao",
    "wandb",
)
START = """
import json, sys
from primus_hydra.config.instantiate import load_target
from primus_hydra.patching import PatchContext, load_patches, run_patches
from primus_hydra.runtime.contracts import BackendAdapter
from tests.support import make_job
name, target, late, names = json.loads(sys.argv[1])
job = make_job({"backend.name": name, "backend._target_": target})
adapter = load_target(target, BackendAdapter, key="backend._target_")(job)
load_patches(name)
version = adapter.detect_backend_version()
records = run_patches("before_import", PatchContext(job=job, backend=name, backend_version=version))
adapter.prepare_backend()
adapter.load_trainer_class("pretrain")
early = [item for item in names if item in sys.modules]
module, function = late
found = getattr(sys.modules[module], function)
print(json.dumps({
    "early": early,
    "failed": [record.reason for record in records if record.status == "failed"],
    "late": found.__name__,
}))
"""
BACKENDS = {
    "torchtitan": (
        "primus_hydra.backends.torchtitan.adapter.TorchTitanAdapter",
        ("torchtitan.hf_datasets.text_datasets", "load_dataset"),
    ),
    "megatron": (
        "primus_hydra.backends.megatron.adapter.MegatronAdapter",
        ("megatron.core.timers", "SummaryWriter"),
    ),
}


@pytest.mark.parametrize("name", BACKENDS)
def test_a_start_imports_nothing_for_later_and_what_is_late_still_works(name: str) -> None:
    target, late = BACKENDS[name]
    ended = subprocess.run(
        [sys.executable, "-c", START, json.dumps([name, target, late, NAMES])],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout.splitlines()[-1])
    assert said == {"early": [], "failed": [], "late": late[1]}
