"""The last lines say what came out and what to type next."""

import io
from pathlib import Path

import pytest

from primus_hydra.ui.closing import (
    Closing,
    Failure,
    losses_of,
    show_closing,
    tail_of,
    with_overrides,
)

ROOT = Path("runs/tiny")
COMMAND = ("primus-hydra", "model=llama3_tiny", "training.steps=300")


def shown(**changes):
    facts = {
        "ending": "done",
        "name": "tiny",
        "root": ROOT,
        "step": 300,
        "steps": 300,
        "command": COMMAND,
        "first_loss": 8.31,
        "last_loss": 2.5,
        "seconds": 83.0,
        "tokens": 4_915_200,
        "plot": ROOT / "plots/loss.png",
        "checkpoint": ROOT / "checkpoints/step-300",
        **changes,
    }
    stream = io.StringIO()
    show_closing(Closing(**facts), stream)
    return stream.getvalue().splitlines()


def test_a_done_run_says_its_losses_time_tokens_places_and_how_to_train_longer():
    assert shown(trackers={"tensorboard": "tensorboard --logdir X"}) == [
        "done: 300 steps, loss 8.3100 -> 2.5000, 1 min 23 s, 4.92M tokens",
        "  run:          runs/tiny",
        "  plot:         runs/tiny/plots/loss.png",
        "  checkpoint:   runs/tiny/checkpoints/step-300",
        "  tensorboard:  tensorboard --logdir X",
        "  train longer: primus-hydra model=llama3_tiny run.name=tiny training.steps=600 resume=must",
    ]


def test_a_finished_run_says_so_and_names_both_ways_on():
    lines = shown(ending="finished_before", seconds=None, tokens=None)
    assert lines[0] == "the run is finished: 300 steps, nothing was started, loss 2.5000"
    assert any(line.endswith("training.steps=600 resume=must") for line in lines)
    assert lines[-1] == "  start anew:   primus-hydra model=llama3_tiny training.steps=300 run.fresh=true"


@pytest.mark.parametrize("ending", ["interrupted", "saved"])
def test_an_interrupted_run_goes_on_with_the_same_command(ending):
    lines = shown(ending=ending, step=120)
    assert "after step 120 of 300" in lines[0]
    assert lines[-1] == "  go on:        primus-hydra model=llama3_tiny training.steps=300"


def test_an_interrupted_run_without_a_checkpoint_does_not_promise_to_go_on():
    assert shown(ending="interrupted", checkpoint=None)[-1].startswith("  start over:")


def test_a_failed_run_shows_the_rank_its_words_and_its_log():
    failure = Failure(
        rank=3, exit_code=-9, log=ROOT / "logs/rank-3.log", message="OutOfMemoryError", tail=("a [b]", "c")
    )
    lines = shown(ending="failed", step=7, failure=failure)
    assert lines[0].startswith("failed after step 7 of 300")
    assert lines[1:5] == [
        "  rank 3 was killed by SIGKILL: OutOfMemoryError",
        "  the last lines of runs/tiny/logs/rank-3.log:",
        "  | a [b]",
        "  | c",
    ]
    assert "  log:          runs/tiny/logs/rank-3.log" in lines


def test_a_rank_that_left_without_a_word_is_told_of_once():
    message = "rank 1 was killed by SIGKILL (often: out of memory) without a word"
    lines = shown(ending="failed", failure=Failure(rank=1, exit_code=137, log=ROOT / "l", message=message))
    assert lines[1] == f"  {message}"


def test_a_dropped_tracker_is_told_at_the_end():
    assert "  wandb stopped: at step 12: no route" in shown(tracker_problems={"wandb": "at step 12: no route"})


def test_overrides_replace_what_the_command_said_and_need_no_quoting_by_the_reader():
    command = ("primus-hydra", "+run.name=old", "training.steps=1", "data.path=a b")
    assert (
        with_overrides(command, {"run.name": "x y"}) == "primus-hydra training.steps=1 'data.path=a b' 'run.name=x y'"
    )


def test_losses_are_taken_from_the_last_row_of_each_step():
    rows = [
        {"step": 1, "loss": 9.0},
        {"step": 2, "loss": 8.0, "validation_loss": 8.5},
        {"step": 1, "loss": 7.0},
        {"step": 3},
    ]
    assert losses_of(rows) == (7.0, 8.0, 8.5)
    assert losses_of([]) == (None, None, None)


def test_the_tail_of_a_log_is_short_and_bears_any_bytes(tmp_path):
    log = tmp_path / "rank-0.log"
    log.write_bytes(b"\xff bad\n" + b"".join(b"line %d\n" % number for number in range(10_000)))
    assert tail_of(log, 2) == ("line 9998", "line 9999")
    log.write_bytes(b"\xff bad\n")
    assert tail_of(log) == ("\ufffd bad",)
    assert tail_of(tmp_path / "absent.log") == ()


@pytest.mark.parametrize(
    ("code", "words"),
    [(-11, "was killed by SIGSEGV"), (137, "was killed by SIGKILL"), (3, "ended with exit code 3"), (None, "without")],
)
def test_the_end_of_a_rank_is_put_in_words(code, words):
    assert words in shown(ending="failed", failure=Failure(rank=0, exit_code=code, log=ROOT / "l"))[1]
