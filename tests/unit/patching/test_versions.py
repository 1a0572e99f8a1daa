"""Which versions a rule fits, as tables."""

from __future__ import annotations

import pytest

from primus_hydra.patching.versions import Installed, any_match, parse_rule, parse_rules

COMMIT = "73a0e69712ab" + "0" * 28


def installed(version: str | None = "0.3.0", *, torch: str | None = "2.14.1", commit: str | None = None) -> Installed:
    return Installed(backend="torchtitan", backend_version=version, backend_commit=commit, torch_version=torch)


@pytest.mark.parametrize(
    ("rule", "version", "holds"),
    [
        (">=0.3,<0.4", "0.3.0", True),
        (">=0.3,<0.4", "0.4.0", False),
        ("==0.3.*", "0.3.7", True),
        ("!=0.3.1", "0.3.1", False),
        ("~=0.3.1", "0.3.5", True),
        ("torchtitan>=0.3", "0.3.0", True),
        ("torchtitan >= 0.3", "0.2.2", False),
        # A local version is the public version with a build mark.
        ("==2.14.1", "2.14.1+cu130", True),
        ("<=2.14.1", "2.14.1+cu130", True),
        (">2.14.1", "2.14.1+cu130", False),
        ("==2.14.1+cpu", "2.14.1+cu130", False),
        # A pre-release already has the code of the release that it leads to.
        (">=0.3", "0.3.0.dev2", True),
        ("<0.3", "0.3.0.dev2", False),
        (">=0.3,<0.4", "0.3.0rc1", True),
        (">=0.3,<0.4", "0.4.0.dev20260101+cu130", False),
        ("==0.3.0", "0.3.0.dev2", True),
        # Unless the rule itself speaks of pre-releases.
        (">=0.3.0.dev5", "0.3.0.dev2", False),
        (">=0.3.0.dev1", "0.3.0.dev2", True),
        ("<0.3.0rc2", "0.3.0rc1", True),
        ("===0.3.0.dev2", "0.3.0.dev2", True),
        ("===0.3.0", "0.3.0.dev2", False),
        (">=0.3", "main", False),
        (">=0.3", None, False),
    ],
)
def test_a_specifier_about_the_backend_is_compared_with_its_version(
    rule: str, version: str | None, holds: bool
) -> None:
    assert parse_rule(rule, backend="torchtitan").check(installed(version)).holds is holds


@pytest.mark.parametrize("version", ["0.2.9", "0.3.0.dev2", "0.3.0rc1", "0.3.0", "0.3.0+cpu", "0.3.1.dev0"])
def test_below_and_from_a_release_leave_no_version_out(version: str) -> None:
    below, upwards = (parse_rule(rule, backend="torchtitan").check(installed(version)) for rule in ("<0.3", ">=0.3"))

    assert below.holds is not upwards.holds


@pytest.mark.parametrize(("torch", "holds"), [("2.13.0", True), ("2.14.1+cu130", False), (None, False)])
def test_a_rule_that_names_torch_is_about_torch(torch: str | None, holds: bool) -> None:
    match = parse_rule("torch<2.14", backend="torchtitan").check(installed(torch=torch))

    assert match.holds is holds
    assert "torch " in match.reason


@pytest.mark.parametrize(
    ("rule", "commit", "holds"),
    [
        ("commit:73a0e69*", COMMIT, True),
        ("commit:73a0e69", COMMIT, True),
        (f"commit:{COMMIT}", COMMIT, True),
        ("commit:73a0e69*", COMMIT.upper(), True),
        ("commit:a0e69", COMMIT, False),
        ("commit:*", None, False),
    ],
)
def test_a_commit_pattern_fits_a_checkout(rule: str, commit: str | None, holds: bool) -> None:
    assert parse_rule(rule, backend="torchtitan").check(installed(commit=commit)).holds is holds


@pytest.mark.parametrize(
    "rule", ["", "torch", "0.3", ">=banana", ">=0.3,,<", "numpy>=2", "*", "commit:", "commit:XYZ", "commit:" + "a" * 41]
)
def test_a_rule_that_cannot_be_checked_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match=r"rule|pattern"):
        parse_rule(rule, backend="torchtitan")


def test_one_fitting_rule_of_several_is_enough() -> None:
    rules = parse_rules(["<0.2", "torch>=2.14"], backend="torchtitan")

    assert any_match(rules, installed()).reason == "torch 2.14.1 is in >=2.14"


def test_when_no_rule_fits_every_reason_is_given() -> None:
    match = any_match(parse_rules(["<0.2", "torch<2.14", "commit:abc"], backend="torchtitan"), installed())

    assert not match.holds
    assert match.reason == (
        "torchtitan 0.3.0 is not in <0.2; torch 2.14.1 is not in <2.14; torchtitan is not from a known commit"
    )


def test_no_rule_fits_every_version_but_an_empty_list_is_refused() -> None:
    assert any_match(parse_rules(None, backend="torchtitan"), installed(None)).holds
    with pytest.raises(ValueError, match="fits nothing"):
        parse_rules([], backend="torchtitan")
