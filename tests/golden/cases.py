"""Wrong inputs as people give them: a command line and files, grouped by what a reader looks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Case:
    """One wrong input. `platform=cpu` comes after `argv`, so that the answer is the same on every machine."""

    title: str
    argv: tuple[str, ...]
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


def case(title: str, *argv: str, env: Mapping[str, str] | None = None, **files: str | bytes) -> Case:
    """Declare a case; `conf__model__mine="..."` is the file conf/model/mine.yaml."""
    named = {f"{name.replace('__', '/')}.yaml": text for name, text in files.items()}
    return Case(title=title, argv=argv, files=named, env=env or {})


MODEL = """\
name: mine
hidden_size: 64
intermediate_size: 128
num_hidden_layers: 2
num_attention_heads: 4
max_position_embeddings: 512
"""
DIR = ("--config-dir", "conf")

NAMES = (
    case("one letter too many", "optimizer.lrr=1e-4"),
    case("two letters swapped", "trainign.steps=10"),
    case("a slip of case in a key", "Training.Steps=10"),
    case("a key without its group", "lr=1e-4"),
    case("a key of another group", "training.lr=1e-4"),
    case("a dash for an underscore", "training.global-batch-size=8"),
    case("a key from Megatron", "tensor_model_parallel_size=2"),
    case("a key from Primus", "train_iters=7"),
    case("a key from torchtitan", "training.local_batch_size=2"),
    case("a key from Hugging Face", "optimizer.learning_rate=1e-4"),
    case("a flag as other launchers take it", "--seq-length=4096"),
    case("a name that is near to nothing", "frobnicate.quux=1"),
    case("a plus does not make a key", "+training.stepz=1"),
    case("a group for a key", "optimizer=adam"),
    case("a key below a key", "training.steps.max=4"),
    case("a mistyped group", "modle=llama3_8b"),
    case("a mistyped option", "model=lama3_8b"),
    case("a slip of case in an option", "model=Llama3_8B"),
    case("an option with its ending", "model=llama3_8b.yaml"),
    case("an option near to nothing", "platform=toaster"),
    case("two options of a group", "model=llama3_8b,qwen3_8b"),
    case("a key removed", "~training.steps"),
    case("a wrong key of Hydra", "hydra.jobb.name=x"),
    case("no value", "training.steps"),
    case("no value for a group", "model"),
    case("spaces around the equals sign", "training.steps = 10"),
)
VALUES = (
    case("text for a whole number", "training.steps=many"),
    case("an exponent for a whole number", "training.steps=1e3"),
    case("a fraction for a whole number", "training.steps=10.5"),
    case("a leading zero", "training.steps=0100"),
    case("thousands with a comma", "training.steps=1,000"),
    case("out of bounds", "training.steps=0", "optimizer.beta1=1.5", "parallel.tp=-1"),
    case("text for a number", "optimizer.lr=fast"),
    case("a decimal comma in quotes", "optimizer.lr='0,1'"),
    case("infinity", "optimizer.lr=inf"),
    case("neither true nor false", "compile.enable=maybe"),
    case("yes for true", "compile.enable=yes"),
    case("a choice that does not exist", "optimizer.name=sgd"),
    case("a mistyped choice", "resume=atuo"),
    case("none for null", "precision.fp8=none"),
    case("null where a value must be", "training.steps=null"),
    case("text for a list", "compile.components=model"),
    case("a bracket left open", "compile.components=[model"),
    case("four mistakes at once", "optimizer.lrr=1", "model=nope", "training.steps=abc", "resume=atuo"),
    case("a variable that is not set", "run.group=${env:PRIMUS_NOWHERE}"),
    case("a variable of the wrong type", "training.steps=${env:STEPS}", env={"STEPS": "1e3"}),
    case("an interpolation of a mistyped key", "run.group=${optimizer.lrr}"),
    case("an interpolation that leads back", "run.group=${run.user}", "run.user=${run.group}"),
    case("a resolver that does not exist", "run.group=${enw:HOME}"),
    case("an interpolation left open", "run.group=${env:HOME"),
)
FILES = (
    case("a folder that is not there", "--config-dir", "nowhere"),
    case("a bad key", *DIR, "model=mine", conf__model__mine=MODEL + "num_hidden_layer: 3\n"),
    case("a bad value", *DIR, "model=mine", conf__model__mine=MODEL.replace("64", "wide")),
    case("a required key left out", *DIR, "model=mine", conf__model__mine=MODEL.replace("hidden_size: 64\n", "")),
    case("a dotted key", *DIR, "experiment=x", conf__experiment__x="# @package _global_\noptimizer.lr: 1.0e-4\n"),
    case("a key twice", *DIR, "model=mine", conf__model__mine=MODEL + "hidden_size: 32\n"),
    case("a tab", *DIR, "model=mine", conf__model__mine=MODEL + "rope_scaling:\n\tfactor: 2\n"),
    case("an empty file", *DIR, "model=mine", conf__model__mine=""),
    case("a list", *DIR, "model=mine", conf__model__mine="- name: mine\n"),
    case("a bracket left open", *DIR, "experiment=x",
         conf__experiment__x="compile:\n  components: [model\nresume: must\n"),
    case("a colon in a value", *DIR, "experiment=x", conf__experiment__x="run:\n  group: a: b\n"),
    case("a quote left open", *DIR, "experiment=x", conf__experiment__x='run:\n  group: "a\n'),
    case("two documents", *DIR, "model=mine", conf__model__mine=MODEL + "---\nname: other\n"),
    case("not UTF-8", *DIR, "model=mine", conf__model__mine=b"name: caf\xe9\n"),
    case("a tag of Python", *DIR, "model=mine", conf__model__mine=MODEL + "head_dim: !!python/name:os.system\n"),
    case("a package line too late", *DIR, "experiment=x", conf__experiment__x="resume: must\n# @package _global_\n"),
    case("several broken files", *DIR, "model=mine", "experiment=x", "tokenizer=z", conf__model__mine="a: [1\n",
         conf__experiment__x="run:\n  name: a\n  name: b\n", conf__tokenizer__z="kind: bpee\n"),
    Case(title="a file that ends in .yml", argv=(*DIR, "model=mine"), files={"conf/model/mine.yml": MODEL}),
    case("an interpolation left open", *DIR, "experiment=x",
         conf__experiment__x="# @package _global_\nrun:\n  group: ${env:HOME\n"),
    case("a value that is still to be given", *DIR, "experiment=x",
         conf__experiment__x="# @package _global_\ntraining:\n  steps: ???\n"),
    case("a leading zero", *DIR, "experiment=x", conf__experiment__x="# @package _global_\ntraining:\n  steps: 0100\n"),
)  # fmt: skip
LISTS = (
    case("defaults in a circle", *DIR, "model=a", conf__model__a="defaults: [b]\n" + MODEL,
         conf__model__b="defaults: [a]\n"),
    case("a default that is not there", *DIR, "model=mine",
         conf__model__mine="defaults:\n  - /model/lama3_8b@_here_\n"),
    case("an override of a mistyped group", *DIR, "experiment=x",
         conf__experiment__x="# @package _global_\ndefaults:\n  - override /modle: llama3_8b\n"),
    case("an override of a mistyped option", *DIR, "experiment=x",
         conf__experiment__x="# @package _global_\ndefaults:\n  - override /model: lama3_8b\n"),
    case("a choice without override", *DIR, "experiment=x",
         conf__experiment__x="# @package _global_\ndefaults:\n  - /model: llama3_8b\n"),
    case("defaults that are no list", *DIR, "experiment=x", conf__experiment__x="defaults:\n  model: llama3_8b\n"),
    case("an experiment without its package", *DIR, "experiment=x", conf__experiment__x="training:\n  steps: 3\n"),
    case("an experiment that is not there", "experiment=nowhere.yaml"),
    case("an experiment file with a bad key", "experiment=x.yaml", x="optimizer:\n  lrr: 3\n"),
    case("an experiment file that is empty", "experiment=x.yaml", x="# nothing yet\n"),
    case("an experiment file with another package", "experiment=x.yaml", x="# @package model\nname: x\n"),
)  # fmt: skip
MEANING = (
    case("sizes that do not divide", "parallel.tp=3"),
    case("a batch that does not divide", "training.global_batch_size=10", "training.micro_batch_size=4"),
    case("a key of another version", "backend.config.training.dump_everything=true"),
    case("a file that is not there", "data=text", "data.path=nowhere/*.txt"),
    case("no file given", "data=text"),
    case("a tokenizer that is not there", "tokenizer=hf", "tokenizer.path=nowhere"),
    case("a wrong point of a sweep", "-m", "optimizer.lr=1e-3,fast", "training.steps=2,3"),
    case("a mistyped option in a sweep", "-m", "model=llama3_tiny,llama3_8"),
    case("a mistyped key in a sweep", "-m", "optimizer.lrr=1e-3,1e-4"),
    case("a continuous sweep", "-m", "optimizer.lr=interval(0,1)"),
    case("an unknown task", "task=trane"),
    case("a target from elsewhere", "task._target_=os.system"),
    case("an option that the task does not have", "task.fast=true"),
)
THEMES = {"names": NAMES, "values": VALUES, "files": FILES, "defaults": LISTS, "meaning": MEANING}
