"""What a person is told for each wrong input, word for word.

PRIMUS_UPDATE_GOLDEN=1 writes the files anew: read them.
"""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import pytest

import primus_hydra
from primus_hydra.app import run_command
from primus_hydra.errors import ExitCode
from tests.golden.cases import THEMES, Case

GOLDEN = Path(__file__).parent / "wrong_inputs"
CONF = (Path(primus_hydra.__file__).parent / "conf").absolute()
UPDATE = bool(os.environ.get("PRIMUS_UPDATE_GOLDEN"))
NEVER_SAID = ("Traceback", "HYDRA_FULL_ERROR", "hydra.cc", "use +", "omegaconf", "LexerNoViableAlt", "did you mean +")


def answer(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the command in a folder that holds the case's files, and return what it says; nothing may be written."""
    for name, content in case.files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    for name, value in case.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    said, printed = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(printed):
        code = run_command([*case.argv, "platform=cpu"])
    assert code == int(ExitCode.USER), f"{case.title}: exit {code}\n{said.getvalue()}"
    assert sorted(folder.rglob("*")) == before, f"{case.title}: something was written"
    assert printed.getvalue() == ""
    found = [words for words in NEVER_SAID if words in said.getvalue()]
    assert found == [], f"{case.title}: {said.getvalue()}"
    return said.getvalue().replace(str(folder), "/home/you").replace(str(CONF), "/opt/primus_hydra/conf")


def section(case: Case, said: str) -> str:
    """Return one case as a person reads it."""
    shown = "".join(
        f"--- {name}\n{text if isinstance(text, str) else repr(text)}" + ("" if str(text).endswith("\n") else "\n")
        for name, text in case.files.items()
    ).replace("\t", "<tab>")
    variables = "".join(f"{name}={value} " for name, value in case.env.items())
    return f"=== {case.title}\n$ {variables}primus-hydra {' '.join(case.argv)}\n{shown}{said}"


def refuse_to_start(composed: object) -> None:
    """Stand in for the first step of a start: an input that is not refused must not train for minutes."""
    raise AssertionError(f"the input was not refused: {composed}"[:200])


@pytest.mark.parametrize("theme", THEMES)
def test_wrong_inputs_are_answered_word_for_word_and_leave_nothing(
    theme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PRIMUS_NOWHERE", raising=False)
    monkeypatch.delenv("PRIMUS_CONF", raising=False)
    monkeypatch.setattr("primus_hydra.tasks.train.run_paths", refuse_to_start)
    sections = []
    for number, case in enumerate(THEMES[theme]):
        folder = tmp_path / str(number)
        folder.mkdir()
        sections.append(section(case, answer(case, folder, monkeypatch)))
    text = "\n".join(sections)
    golden = GOLDEN / f"{theme}.txt"
    if UPDATE:
        golden.write_text(text, encoding="utf-8")

    assert golden.read_text(encoding="utf-8") == text


def test_there_are_many_cases_and_no_two_are_the_same() -> None:
    cases = [case for theme in THEMES.values() for case in theme]

    assert len(cases) >= 60
    assert len({(case.argv, tuple(case.files.items()), tuple(case.env)) for case in cases}) == len(cases)
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(THEMES)
