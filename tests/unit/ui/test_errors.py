"""An error that a person can mend reads like advice, not like a crash."""

import io

from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.ui.errors import show_error


def shown(error):
    stream = io.StringIO()
    show_error(error, stream)
    return stream.getvalue()


def test_one_problem_is_not_numbered():
    error = UserError(
        Problem(what="unknown key", key="training.stepz", where="override 2", hint="did you mean training.steps?")
    )
    assert shown(error) == (
        "error: the configuration cannot be used\n"
        "  training.stepz: unknown key\n"
        "  at override 2\n"
        "  did you mean training.steps?\n"
    )


def test_several_problems_are_counted_numbered_and_aligned():
    assert shown(HostError(Problem(what="first\nmore", hint="a\nb"), "second [red]")) == (
        "error: this machine cannot do that (2 problems)\n  1. first\n     more\n     a\n     b\n  2. second [red]\n"
    )


def test_long_lines_and_colours_are_left_alone_in_a_file():
    text = shown(UserError("x" * 300))
    assert "x" * 300 in text
    assert "\x1b" not in text
