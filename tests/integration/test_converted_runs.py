"""Runs of several ranks start from a converted checkpoint, and what they save is converted back bit by bit."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from primus_hydra.config.build import dump_job
from primus_hydra.weights.request import ConvertRequest, Kind, NativeKind
from tests.integration.conversions import convert_all
from tests.integration.megatron.test_parity import (
    ALIKE,
    SIZES_AND_ROPE,
    UNCHANGED,
    assert_same,
    neutral,
    save_models,
)
from tests.integration.ranked.driver import choose
from tests.integration.ranked.lab import Lab, open_lab
from tests.integration.ranked.ranks import RankServer
from tests.support import make_job

pytestmark = pytest.mark.ranks

LAYOUTS: dict[str, tuple[NativeKind, str, dict[str, Any]]] = {
    "megatron tp": ("megatron", "mla", {"parallel.tp": 2}),
    "megatron pp": ("megatron", "mla2", {"parallel.pp": 2}),
    "megatron tied pp": ("megatron", "tied", {"parallel.pp": 2}),
    "torchtitan dp": ("torchtitan", "mla", {"parallel.dp_shard": 2}),
    "torchtitan tp": ("torchtitan", "tied", {"parallel.tp": 2}),
}


@dataclasses.dataclass(kw_only=True)
class Place:
    """Where models, converted checkpoints and runs lie, and who trains."""

    root: Path
    labs: dict[NativeKind, Lab]

    def request(self, model: str, source: Path, kinds: tuple[Kind, Kind], output: Path) -> ConvertRequest:
        """Ask for a conversion of a model."""
        job = self.root / f"{model}.yaml"
        job.write_text(dump_job(make_job({**SIZES_AND_ROPE, **neutral(model)})))
        return ConvertRequest(
            job=str(job),
            source=str(source),
            source_kind=kinds[0],
            to=kinds[1],
            output=str(output),
            dtype="keep",
            shard_bytes=10**9,
            verify="tensors",
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("converted")
    save_models(root / "models")
    with open_lab("megatron", root, ALIKE) as megatron:
        server = RankServer("torchtitan", root / "titan.txt")
        try:
            titan = dataclasses.replace(megatron, server=server, settings=megatron.settings | choose("torchtitan"))
            yield Place(root=root, labs={"megatron": megatron, "torchtitan": titan})
        finally:
            server.close()


@pytest.fixture(scope="module")
def came_back(place: Place) -> dict[str, Path]:
    """The Hugging Face folder made of each run's checkpoint."""
    there, back = [], []
    for name, (kind, model, _) in LAYOUTS.items():
        there.append(place.request(model, place.root / "models" / model, ("hf", kind), place.root / f"{name} start"))
        saved = place.root / name / "checkpoints" / "step-1"
        back.append(place.request(model, saved, (kind, "hf"), place.root / f"{name} back"))
    convert(place, there)
    for name, (kind, model, layout) in LAYOUTS.items():
        start = {**UNCHANGED, **neutral(model), **layout, "checkpoint.export_hf": False}
        lab = place.labs[kind]
        results = lab.train(2, lab.scenario(name, {**start, "init_from": str(place.root / f"{name} start")}))
        assert [rank[0].error for rank in results] == [None, None]
    convert(place, back)
    return {name: place.root / f"{name} back" for name in LAYOUTS}


def convert(place: Place, requests: list[ConvertRequest]) -> None:
    """Carry out requests, in one process."""
    answers = convert_all(requests, place.root)
    assert [answer for answer in answers if "result" not in answer] == []


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_run_of_two_ranks_keeps_the_weights_of_a_converted_checkpoint(
    name: str, place: Place, came_back: dict[str, Path]
) -> None:
    assert_same(came_back[name], place.root / "models" / LAYOUTS[name][1], torch.float32)


def test_a_converted_checkpoint_has_the_manifest_by_which_runs_know_its_model(
    place: Place, came_back: dict[str, Path]
) -> None:
    manifest = json.loads((place.root / "megatron tp start" / "primus_checkpoint.json").read_text())

    assert manifest["extra"]["backend"] == "megatron"
    assert manifest["extra"]["model"]["kv_lora_rank"] == 16
