"""What the decorator accepts, refuses and orders."""

from __future__ import annotations

from typing import Any

import pytest

from primus_hydra.patching import PatchContext, PatchDefinitionError, Registry


def declare(registry: Registry, id: str = "titan.one", **changes: Any) -> None:
    arguments: dict[str, Any] = {"backend": "titan", "phase": "setup", "why": "It breaks otherwise.", **changes}

    @registry.register(id, **arguments)
    def patch(context: PatchContext) -> None: ...


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"why": "  "}, "`why` is empty"),
        ({"phase": "before_imports"}, "did you mean before_import"),
        ({"phase": "zzz"}, "phases: before_import"),
        ({"versions": ">=banana"}, "cannot be read"),
        ({"versions": ["numpy<2"]}, "about 'numpy'"),
        ({"on_error": "ignore"}, "on_error is 'fail' or 'warn'"),
        ({"backend": ""}, "backend is empty"),
        ({"tags": "cpu"}, "list of words"),
        ({"condition": lambda context: True}, "needs `when`"),
        ({"when": "on a CPU"}, "there is none"),
        ({"id": "titan.*"}, "id must be"),
        ({"id": "a,b"}, "id must be"),
        ({"id": "none"}, "id must be"),
        ({"id": ""}, "id must be"),
    ],
)
def test_a_wrong_declaration_is_refused_when_it_is_registered(changes: dict[str, Any], message: str) -> None:
    registry = Registry()

    with pytest.raises(PatchDefinitionError, match=message.replace("*", r"\*")):
        declare(registry, **changes)

    assert registry.patches("titan") == []


def test_everything_wrong_with_a_declaration_is_said_at_once() -> None:
    with pytest.raises(PatchDefinitionError) as caught:
        declare(Registry(), why="", phase="later", versions="banana")

    for part in ("`why` is empty", "no phase 'later'", "banana"):
        assert part in str(caught.value)


def test_an_id_is_registered_once_and_its_owner_is_named() -> None:
    registry = Registry()
    declare(registry)

    with pytest.raises(PatchDefinitionError, match=r"taken by tests\.unit\.patching\.test_registry"):
        declare(registry)


def test_lower_priority_comes_first_and_ties_keep_their_order() -> None:
    registry = Registry()
    for id, priority in [("late", 90), ("b", 50), ("a", 50), ("early", 10)]:
        declare(registry, id, priority=priority)

    assert [patch.id for patch in registry.patches("titan")] == ["early", "b", "a", "late"]


def test_a_wildcard_stands_for_every_backend_and_every_phase() -> None:
    registry = Registry()
    declare(registry, "everywhere", backend="*", phase="*")
    declare(registry, "mine")
    declare(registry, "theirs", backend="other")

    assert [patch.id for patch in registry.patches("titan", "setup")] == ["everywhere", "mine"]
    assert [patch.id for patch in registry.patches("titan", "convert")] == ["everywhere"]


def test_a_named_condition_describes_itself() -> None:
    def on_a_cpu(context: PatchContext) -> bool:
        return True

    def documented(context: PatchContext) -> bool:
        """the platform has no accelerator."""
        return True

    registry = Registry()
    declare(registry, "name", condition=on_a_cpu)
    declare(registry, "doc", condition=documented)
    declare(registry, "when", condition=documented, when="on a CPU node")

    sentences = [patch.when for patch in registry.patches("titan")]
    assert sentences == ["on a cpu", "the platform has no accelerator", "on a CPU node"]


def test_a_patch_may_be_for_several_backends() -> None:
    registry = Registry()
    declare(registry, backend=("titan", "comet"), versions="comet>=1")

    assert [len(registry.patches(name)) for name in ("titan", "comet", "other")] == [1, 1, 0]
    with pytest.raises(PatchDefinitionError, match="backend is empty"):
        declare(Registry(), backend=())
