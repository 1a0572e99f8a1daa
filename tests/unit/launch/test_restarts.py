"""When another start of the ranks is worth it."""

from __future__ import annotations

from primus_hydra.launch.restarts import Decision, Failure, RestartPolicy


def decisions(*failures: Failure) -> list[Decision]:
    policy = RestartPolicy(1.0)
    return [policy.after(failure) for failure in failures]


def test_failures_with_progress_between_them_are_all_forgiven() -> None:
    found = decisions(*(Failure(step=step, said="a rank died") for step in (5, 9, 14, 20)))
    assert all(decision.restart and decision.wait_s == 0 for decision in found)


def test_the_same_failure_at_the_same_step_ends_early() -> None:
    first, second = decisions(Failure(step=5, said="bad batch"), Failure(step=5, said="bad batch"))
    assert first.restart
    assert not second.restart
    assert second.reason == "the same failure came back at step 6"


def test_another_failure_without_progress_waits_before_it_tries_again() -> None:
    found = decisions(Failure(step=5, said="a"), Failure(step=5, said="b"), Failure(step=3, said="c"))
    assert [(decision.restart, decision.wait_s) for decision in found] == [(True, 0.0), (True, 1.0), (False, 0.0)]
    assert "3 failures in a row" in found[2].reason


def test_progress_clears_what_was_before() -> None:
    found = decisions(*(Failure(step=step, said=said) for step, said in ((5, "a"), (5, "b"), (7, "b"), (7, "c"))))
    assert [decision.restart for decision in found] == [True] * 4


def test_a_start_that_fails_after_real_progress_is_tried_again_whatever_it_says() -> None:
    found = decisions(*(Failure(step=step, said="port taken") for step in (5, -1, -1, 9)))
    assert [(decision.restart, decision.wait_s) for decision in found] == [(True, 0), (True, 1), (True, 2), (True, 0)]


def test_too_many_starts_in_a_row_without_a_step_end_the_attempt() -> None:
    found = decisions(*(Failure(step=step, said=f"no {step}") for step in (5, -1, -1, -1)))
    assert [decision.restart for decision in found] == [True, True, True, False]
    assert found[-1].reason == "3 starts in a row failed before their first step"


def test_a_failed_start_between_hides_no_failure_that_comes_back() -> None:
    found = decisions(Failure(step=5, said="bad batch"), Failure(step=-1, said="x"), Failure(step=5, said="bad batch"))
    assert [decision.restart for decision in found] == [True, True, False]
    assert found[-1].reason == "the same failure came back at step 6"


def test_steps_that_are_done_again_are_no_progress() -> None:
    found = decisions(*(Failure(step=step, said=f"at {step}") for step in (9, 3, 5)))
    assert [decision.restart for decision in found] == [True, True, False]


def test_two_failures_that_take_turns_end_early() -> None:
    found = decisions(*(Failure(step=step, said=said) for step, said in ((7, "a"), (5, "b"), (7, "a"))))
    assert found[-1].reason == "the same failure came back at step 8"


def test_a_failure_before_the_first_step_is_named_so() -> None:
    found = decisions(Failure(step=-1, said="a"), Failure(step=-1, said="a"))
    assert found[1].reason == "the same failure came back before the first step"
