"""Text for text keys is the same in the ranks as it was typed, whichever way it came."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from primus_hydra.config.compose import Request, compose
from tests.integration.launching import toy_launch

pytestmark = pytest.mark.ranks

TYPED = {
    "SHA": "12e4567",
    "ZEROS": "00123",
    "VERSION": "2024.10",
    "CHECKPOINT": "epoch=3-step=10.ckpt",
    "DEVICES": "mlx5_0:1,mlx5_3:1",
    "HASH": "a#b",
    "OTHER_SCRIPT": "日本語",
    "GLOB": "Et*1|t*2",
    "MARKS": "???",
    "QUOTES": 'it\'s "so"\\',
    "LINES": "one\ntwo\ttabs ",
    "BRACES": "{a: [b]}",
    "WORD": "true",
    "NOTHING": "",
}


def test_text_reaches_the_environment_and_the_configuration_of_a_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIMUS_TEST_SHA", "1e5")
    file = tmp_path / "mine.yaml"
    file.write_text("env:\n  IN_FILE: 0x1F\n  FROM_ENV: ${env:PRIMUS_TEST_SHA}\nrun:\n  group: 2024-10-01\n")
    typed = [f"env.{name}={text}" for name, text in TYPED.items()]

    composed = compose(Request(overrides=["platform=cpu", f"experiment={file}", *typed, "env.OF_KEY=${run.group}"]))

    wanted = {**TYPED, "IN_FILE": "0x1F", "FROM_ENV": "1e5", "OF_KEY": "2024-10-01"}
    assert {name: composed.job.env[name] for name in wanted} == wanted
    told = {"backend.config": {"do": {"0": {"how": "tell"}}}, "training.steps": 1}
    with toy_launch(tmp_path, {**told, "env": dict(composed.job.env), "run.group": composed.job.run.group}) as launch:
        result = launch.result()
        assert result["code"] == 0, result["stderr"] + launch.logs()
    seen = json.loads((tmp_path / "run" / "told-0.json").read_text(encoding="utf-8"))
    assert {name: seen["env"][name] for name in wanted} == wanted
    assert {name: seen["environment"][name] for name in wanted} == wanted
    assert seen["group"] == "2024-10-01"
