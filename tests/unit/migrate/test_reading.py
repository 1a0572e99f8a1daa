"""How Primus's files are read: substitution, YAML 1.1, inheritance, merging, and its command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from primus_hydra.config.resolvers import register_resolvers, text_wanted
from primus_hydra.errors import UserError
from primus_hydra.migrate.given import Given, Tree, leaves, merged, tree_of, without_taken
from primus_hydra.migrate.inheritance import read_with_bases
from primus_hydra.migrate.overrides import cast_word, read_overrides, words_of
from primus_hydra.migrate.primus_file import Presets, read_experiment
from primus_hydra.migrate.substitution import UnsetVariableError, cast, in_our_words, is_one_variable, substitute
from primus_hydra.migrate.yaml_file import parse_yaml


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder


def values(tree: Tree) -> dict[str, object]:
    return {name: given.value for name, given in leaves(tree)}


def tree(**names: object) -> Tree:
    return tree_of({name.replace("__", "."): Given(value=value, where="here") for name, value in names.items()})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "set"),
        ("${A:other}", "set"),
        ("${NO:other}", "other"),
        ("${NO:}", ""),
        ("${NO:b:c}", "b:c"),
        ("${NO:null}", "null"),
        ("${A}/${NO:x}", "set/x"),
        ("${NO:TRUE}", True),
        ("${NO:false}", False),
        ("${NO:12}", 12),
        ("${NO:-12}", -12),
        ("${NO:1.}", 1.0),
        ("${NO:.5}", 0.5),
        ("${NO:1e5}", 1e5),
        ("${NO:1.2e-5}", 1.2e-5),
        ("1${NO:0}", 10),
        ("${NO:1}x", "1x"),
        ("plain 1e5", "plain 1e5"),
        ("$A", "$A"),
    ],
)
def test_a_variable_is_put_in_and_the_whole_is_cast(text: str, value: object) -> None:
    found = substitute(text, {"A": "set"})

    assert (found, type(found)) == (value, type(value))


def test_only_what_was_put_in_is_cast() -> None:
    assert substitute("12", {}) == "12"
    assert cast("0x10") == "0x10"


def test_a_variable_without_default_must_be_set() -> None:
    with pytest.raises(UnsetVariableError, match="NO"):
        substitute("${NO}", {})


@pytest.mark.parametrize("default", ["word", "1e-5", "a b", "b:c", "it's", "null", "", "x,y", "a/b.c-d"])
def test_our_interpolation_gives_the_same_text(default: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE_SET", raising=False)
    register_resolvers()
    ours = in_our_words(f"<${{NOWHERE_SET:{default}}}>")

    with text_wanted(True):
        assert OmegaConf.create({"key": ours}).key == f"<{default}>"
    assert is_one_variable(f"${{NOWHERE_SET:{default}}}")


@given(st.dictionaries(st.sampled_from("abc"), st.integers() | st.dictionaries(st.sampled_from("xyz"), st.integers())))
def test_merging_with_nothing_and_with_itself_changes_nothing(plain: dict[str, object]) -> None:
    flat = {f"{k}.{i}" if isinstance(v, dict) else k: j for k, v in plain.items() for i, j in _items(v)}
    whole = tree_of({name: Given(value=value, where="here") for name, value in flat.items()})

    assert merged(whole, {}) == merged({}, whole) == merged(whole, whole) == whole


def _items(value: object) -> list[tuple[str, object]]:
    return list(value.items()) if isinstance(value, dict) else [("", value)]


def test_groups_merge_deeply_and_everything_else_is_replaced() -> None:
    base, over = tree(a__x=1, a__y=[1, 2], b=3), tree(a__y=[9], a__z=4, b__c=5)

    assert values(merged(base, over)) == {"a.x": 1, "a.y": [9], "a.z": 4, "b.c": 5}
    assert values(base) == {"a.x": 1, "a.y": [1, 2], "b": 3}


def test_what_is_taken_may_not_be_changed() -> None:
    free, lost = without_taken(tree(a__x=1, a__y=2, b=3, c=4), tree(a__y=5, b=6))

    assert values(free) == {"a.x": 1, "c": 4}
    assert {name: given.value for name, given in lost.items()} == {"a.y": 2, "b": 3}


def test_yaml_is_read_as_pyyaml_reads_it_and_what_it_hides_is_told() -> None:
    text = "a: 1e-5\nb: on\nc: 010\nd: 2024-10-01\ne: 1\ne: 2\nf: &x {g: 1}\nh: {<<: *x, i: '${NO:3}'}\nj: '1e-5'\n"
    file = parse_yaml(text, Path("x.yaml"), {})

    assert [values(file.tree)[name] for name in ("a", "b", "c", "e", "f.g", "h.g", "h.i")] == [
        "1e-5",
        True,
        8,
        2,
        1,
        1,
        3,
    ]
    assert str(values(file.tree)["d"]) == "2024-10-01"
    assert [(remark.name, remark.where) for remark in file.remarks] == [("a", "x.yaml:1"), ("e", "x.yaml:6")]


def test_all_variables_that_are_not_set_are_named_at_once() -> None:
    with pytest.raises(UserError) as caught:
        parse_yaml("a: ${ONE}\nb: [x, '${TWO}']\n", Path("x.yaml"), {})

    assert [problem.where for problem in caught.value.problems] == ["x.yaml:1", "x.yaml:2"]
    assert "export TWO" in str(caught.value.problems[1].hint)


@pytest.mark.parametrize(("text", "said"), [("a: [1\n", "not valid YAML"), ("- a\n", "no group of keys")])
def test_what_is_no_file_of_keys_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        parse_yaml(text, Path("x.yaml"), {})

    assert str(caught.value.problems[0].where).startswith("x.yaml")


def test_bases_come_in_their_order_and_the_body_wins(tmp_path: Path) -> None:
    write(
        tmp_path,
        ground="a: 0\nb: 0\nc: 0\nd: {x: 0, y: 0}\n",
        one="extends: ground.yaml\na: 1\nb: 1\n",
        two="b: 2\nd: {y: 2}\n",
        top="extends: [one.yaml, two.yaml]\nc: 3\n",
    )
    file = read_with_bases(tmp_path / "top.yaml", {})

    assert values(file.tree) == {"a": 1, "b": 2, "c": 3, "d.x": 0, "d.y": 2}
    assert {name: Path(given.where).name for name, given in leaves(file.tree)}["d.y"] == "two.yaml:2"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"top": "extends: other.yaml\n", "other": "extends: top.yaml\n"}, "top.yaml -> other.yaml -> top.yaml"),
        ({"top": "extends: nowhere.yaml\n"}, "nowhere.yaml"),
        ({"top": "extends:\n"}, "takes the path of a file"),
    ],
)
def test_a_broken_chain_is_refused(files: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        read_with_bases(write(tmp_path, **files) / "top.yaml", {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("None", None),
        ("null", "null"),
        ("12", 12),
        ("-3", -3),
        ("1.5e-3", 1.5e-3),
        ("1e-5", "1e-5"),
        ("[1, 'a']", [1, "a"]),
        ("(1, 2)", [1, 2]),
        ("{'a': 1}", {"a": 1}),
        ("__import__('os')", "__import__('os')"),
        ("[open('x')]", "[open('x')]"),
    ],
)
def test_a_word_of_the_command_line_is_cast_as_there_and_never_run(text: str, value: object) -> None:
    assert cast_word(text) == value
    assert type(cast_word(text)) is type(value)


def test_every_form_of_an_override_is_read() -> None:
    words = words_of("a=1 --b=2 --c 3 --flag --d.e x --last")

    assert values(read_overrides(words)) == {"a": 1, "b": 2, "c": 3, "flag": True, "d.e": "x", "last": True}
    assert values(read_overrides(["a=1", "a.b=2"])) == {"a.b": 2}


def test_words_that_give_no_value_are_all_refused() -> None:
    with pytest.raises(UserError) as caught:
        read_overrides(["stray", "a=1", "=2"])

    assert len(caught.value.problems) == 2


EXPERIMENT = """\
work_group: a
user_name: b
exp_name: c
workspace: d
modules:
  pre_trainer:
    framework: megatron
    config: base
    model: small.yaml
    overrides: {lr: 3}
"""


def presets(folder: Path) -> Presets:
    for kind in ("modules", "models"):
        (folder / "presets" / kind / "megatron").mkdir(parents=True)
    write(folder / "presets/modules/megatron", base="lr: 1\nseed: 1\n")
    write(folder / "presets/models/megatron", small="lr: 2\nnum_layers: 4\nseed: 1\n")
    return Presets(root=folder / "presets", environment={})


def test_a_model_changes_no_key_of_the_module_and_the_command_line_wins(tmp_path: Path) -> None:
    file = write(tmp_path, x=EXPERIMENT) / "x.yaml"
    recipe = read_experiment(file, presets(tmp_path), ["--num_layers", "8"])

    assert {name: given.value for name, given in recipe.keys.items()} == {"lr": 3, "seed": 1, "num_layers": 8}
    assert {name: given.value for name, given in recipe.lost.items()} == {"lr": 2}
    assert (recipe.framework, recipe.preset, recipe.complete) == ("megatron", "small.yaml", True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("model: small", "model: smal"), "did you mean small.yaml"),
        (("pre_trainer", "post_trainer"), "only post_trainer is there"),
        (("    framework: megatron\n", ""), "who trains"),
    ],
)
def test_what_is_missing_is_refused_with_its_nearest_name(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    file = write(tmp_path, x=EXPERIMENT.replace(*change)) / "x.yaml"
    with pytest.raises(UserError) as caught:
        read_experiment(file, presets(tmp_path), [])

    assert said in "\n".join(map(str, caught.value.problems))
