"""Whatever a rank says lands in its log."""

import subprocess
import sys
import textwrap

PRELUDE = """
import ctypes, logging, os, sys, warnings
from pathlib import Path
from primus_hydra.runtime.logs import redirect_to
log = redirect_to(Path(sys.argv[1]), rank=3, title="attempt 2")
"""


def run(path, body):
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(body), str(path)], capture_output=True, text=True
    )


def test_prints_logging_warnings_and_native_output_land_in_the_log_and_nowhere_else(tmp_path):
    path = tmp_path / "logs" / "rank-3.log"
    process = run(
        path,
        """
        print("from print", "日本")
        logging.getLogger("lib").info("from logging")
        warnings.warn("from warnings")
        os.system("echo from a child")
        libc = ctypes.CDLL(None)
        libc.puts(b"from native code")
        libc.fflush(None)
        """,
    )
    assert (process.stdout, process.stderr, process.returncode) == ("", "", 0)
    text = path.read_text(encoding="utf-8")
    for said in (
        "from print 日本",
        "rank 3 INFO lib: from logging",
        "from warnings",
        "from a child",
        "from native code",
    ):
        assert said in text
    assert text.splitlines()[0].endswith("attempt 2")


def test_a_later_attempt_appends(tmp_path):
    path = tmp_path / "rank-3.log"
    for word in ("first", "second"):
        run(path, f"print({word!r})")
    lines = path.read_text().splitlines()
    assert [line for line in lines if not line.startswith("=====")] == ["first", "second"]


def test_the_original_standard_error_stays_reachable(tmp_path):
    process = run(tmp_path / "rank-3.log", "print('step 1', file=log.original_stderr)")
    assert process.stderr == "step 1\n"
    assert "step 1" not in (tmp_path / "rank-3.log").read_text()


def test_a_traceback_and_the_stack_of_a_native_crash_are_in_the_log(tmp_path):
    process = run(tmp_path / "a.log", "raise RuntimeError('boom')")
    assert (process.returncode, process.stderr) == (1, "")
    assert "RuntimeError: boom" in (tmp_path / "a.log").read_text()
    run(tmp_path / "b.log", "os.kill(os.getpid(), 11)")
    assert "Fatal Python error: Segmentation fault" in (tmp_path / "b.log").read_text()


def test_handlers_that_a_library_installed_before_are_replaced(tmp_path):
    path = tmp_path / "rank-3.log"
    code = "import logging, sys\nlogging.basicConfig(stream=sys.__stdout__)\n" + PRELUDE
    code += "logging.getLogger('x').warning('once')\n"
    process = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert process.stdout == ""
    assert path.read_text().count("once") == 1
