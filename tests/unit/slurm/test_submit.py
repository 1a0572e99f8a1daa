from __future__ import annotations

import os
from pathlib import Path

import pytest

from primus_hydra.errors import HostError, PrimusError, UserError
from primus_hydra.slurm.client import Answer, call, client_environment
from primus_hydra.slurm.submit import submit_script
from tests.unit.slurm.fakes import says

FULL = (
    "QOSMaxSubmitJobPerUserLimit; Batch job submission failed: Job violates accounting/QOS policy (job submit limit, "
    "user's size and/or time limits)"
)


def refusal(words: str, code: int | None = 1) -> PrimusError:
    with pytest.raises(PrimusError) as raised:
        submit_script(Path("/script.sh"), ask=says(Answer(code=code, words=words)))
    return raised.value


def test_the_number_of_the_job_is_read_from_the_answer() -> None:
    assert submit_script(Path("/s.sh"), ask=says(Answer(code=0, out="Submitted batch job 4711\n"))) == "4711"


def test_an_answer_without_a_number_is_told_as_it_is() -> None:
    with pytest.raises(HostError, match="hello"):
        submit_script(Path("/s.sh"), ask=says(Answer(code=0, out="hello\n")))


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (
            "invalid partition specified: nope; Batch job submission failed: Invalid partition name specified",
            "partition",
        ),
        ("Invalid --time specification", "time"),
        ("Batch job submission failed: Invalid node name specified", "nodelist"),
        ("Batch job submission failed: Invalid feature specification", "constraint"),
        ("Batch job submission failed: Requested reservation is invalid", "reservation"),
        ("Batch job submission failed: Invalid account or account/partition combination specified", "account"),
        ("Batch job submission failed: Invalid qos specification", "qos"),
        ("Memory specification can not be satisfied", "mem"),
        ("unrecognized option '--bogus=1'", "sbatch_args"),
    ],
)
def test_a_refused_option_is_the_users_with_its_key_and_the_words_of_sbatch(words: str, key: str) -> None:
    error = refusal(words)

    assert isinstance(error, UserError)
    assert error.problems[0].key == f"launch.slurm.{key}"
    assert words in error.problems[0].what


def test_a_full_queue_and_a_controller_that_is_away_are_no_mistakes_of_the_user() -> None:
    full = refusal(FULL)
    away = refusal("Batch job submission failed: Unable to contact slurm controller (connect failure)")

    assert isinstance(full, HostError)
    assert "takes no more jobs" in str(full)
    assert "QOSMaxSubmitJobPerUserLimit" in str(full)
    assert isinstance(away, HostError)
    assert "does not answer" in str(away)


def test_a_queue_that_sbatch_waits_for_is_told_as_full_in_its_words(tmp_path: Path) -> None:
    script = tmp_path / "sbatch"
    script.write_text("#!/bin/sh\necho 'sbatch: error: Slurm temporarily unable to accept job' >&2\nexec sleep 60\n")
    script.chmod(0o755)
    answer = call([str(script)], timeout_s=0.5)

    assert answer.unreachable
    assert "the queue takes no more jobs" in str(refusal(answer.words, answer.code))
    assert "temporarily unable to accept job" in answer.words


def test_without_sbatch_the_way_out_is_told() -> None:
    assert "not installed" in str(refusal("", code=None))


def test_the_keys_win_over_what_the_shell_says_of_the_same_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "sbatch"
    program.write_text(f'#!/bin/sh\nenv > {tmp_path}/seen\necho "Submitted batch job 5"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name in ("SBATCH_PARTITION", "SBATCH_TIMELIMIT", "SBATCH_EXPORT", "SBATCH_QOS", "SLURM_NTASKS", "SLURM_CONF"):
        monkeypatch.setenv(name, "shell")
    submit_script(Path("/s.sh"), owned=("partition", "time"))
    seen = {line.partition("=")[0] for line in (tmp_path / "seen").read_text().splitlines()}

    assert {"SBATCH_QOS", "SLURM_CONF"} <= seen
    assert not seen & {"SBATCH_PARTITION", "SBATCH_TIMELIMIT", "SBATCH_EXPORT", "SLURM_NTASKS"}


def test_a_program_that_hangs_is_given_up(tmp_path: Path) -> None:
    answer = call(["sleep", "30"], client_environment(os.environ), timeout_s=0.2)

    assert answer.unreachable
    assert not answer.missing


def test_the_words_of_a_program_come_without_its_name() -> None:
    answer = call(["sh", "-c", "echo 'sh: error: no' >&2; echo 'Try sh --help' >&2; exit 1"])

    assert (answer.code, answer.words) == (1, "no")
