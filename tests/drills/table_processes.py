"""Faults of processes: they are killed, told to stop, hang, fail, and run out of memory."""

from __future__ import annotations

import signal

from tests.drills import injections
from tests.drills.fault import FINISHED, ONE_RESTART, RESTARTED, Expect, Fault
from tests.drills.injections import IN_SAVE, IN_STEP
from tests.drills.scene import Act

_SHORT = "launch.timeouts.{}=8"
"""Long enough for a busy machine, short enough to wait for."""

DEATHS = (
    Fault(
        name="rank-killed",
        kind="death",
        sentence="kill -9 of one rank",
        made="SIGKILL to rank 1 in step 5, one restart allowed",
        overrides=ONE_RESTART,
        acts=(IN_STEP,),
        inject=injections.kill(injections.one_rank),
        first=RESTARTED,
        second=None,
    ),
    Fault(
        name="ranks-killed",
        kind="death",
        sentence="kill -9 of all ranks",
        made="SIGKILL to both ranks in step 5, one restart allowed",
        overrides=ONE_RESTART,
        acts=(IN_STEP,),
        inject=injections.kill(injections.all_ranks),
        first=RESTARTED,
        second=None,
    ),
    Fault(
        name="rank-killed-in-save",
        kind="death",
        sentence="kill -9 of a rank in a save",
        made="SIGKILL to rank 0 when the files of step 6 are written but do not count yet, one restart allowed",
        overrides=ONE_RESTART,
        acts=(IN_SAVE,),
        inject=injections.kill(injections.saving_rank, IN_SAVE),
        first=RESTARTED,
        second=None,
    ),
    Fault(
        name="agent-killed",
        kind="death",
        sentence="kill -9 of torch's agent",
        made="SIGKILL in step 5 to the process that starts the ranks",
        acts=(IN_STEP,),
        inject=injections.kill(injections.agent),
        first=Expect(code=137, word="failed", says=r"torch's agent was killed by SIGKILL"),
    ),
    Fault(
        name="server-killed",
        kind="death",
        sentence="kill -9 of the fork server",
        made="SIGKILL in step 5 to the process that the ranks are forked from, one restart allowed",
        overrides=ONE_RESTART,
        acts=(IN_STEP,),
        inject=injections.kill(injections.server),
        first=RESTARTED,
        second=None,
    ),
    Fault(
        name="parent-killed",
        kind="death",
        sentence="kill -9 of the command itself",
        made="SIGKILL to the launcher in step 5",
        acts=(IN_STEP,),
        inject=injections.kill(injections.launcher),
        first=Expect(code=-9, word="died", says=r"^starting 2 rank"),
    ),
    Fault(
        name="parent-killed-in-save",
        kind="death",
        sentence="kill -9 of the command itself in a save",
        made="SIGKILL to the launcher when the files of step 6 are written but do not count yet",
        acts=(IN_SAVE,),
        inject=injections.kill(injections.launcher, IN_SAVE),
        first=Expect(code=-9, word="died", says=r"^starting 2 rank"),
        second=Expect(code=0, word="finished", says=r"^a checkpoint was set aside \(damaged-6\)"),
    ),
)

SIGNALS = (
    Fault(
        name="sigterm-in-step",
        kind="signal",
        sentence="SIGTERM at any moment of a step",
        made="SIGTERM to the launcher at a random moment after step 4",
        acts=(IN_STEP,),
        inject=injections.terminate_at_random,
        first=Expect(code=75, word="saved", says=r"^SIGTERM: stopping after this step, with a save"),
        resumes_after=None,
    ),
    Fault(
        name="sigterm-in-save",
        kind="signal",
        sentence="SIGTERM in a save",
        made="SIGTERM to the launcher while step 6 is being saved",
        acts=(IN_SAVE,),
        inject=injections.terminate(IN_SAVE),
        first=Expect(code=75, word="saved", says=r"^  stopped and saved at step"),
        resumes_after=None,
    ),
    Fault(
        name="sigint-once",
        kind="signal",
        sentence="SIGINT once",
        made="SIGINT to the launcher in step 5",
        acts=(IN_STEP,),
        inject=injections.send(signal.SIGINT, injections.launcher, IN_STEP),
        first=Expect(code=130, word="interrupted", says=r"^interrupted after step \d+ of 12"),
        resumes_after=None,
    ),
    Fault(
        name="sigint-twice",
        kind="signal",
        sentence="SIGINT twice",
        made="SIGINT to the launcher in step 5, and again when it has answered",
        acts=(IN_STEP,),
        inject=injections.interrupt_twice,
        first=Expect(code=130, word="interrupted", says=r"stopped at once; nothing was saved at this stop"),
    ),
)

HANGS = (
    Fault(
        name="hang-in-collective",
        kind="hang",
        sentence="a rank that hangs while the others wait in a collective",
        made="SIGSTOP to rank 1 in step 5, one restart allowed",
        overrides=(*ONE_RESTART, _SHORT.format("step")),
        acts=(IN_STEP,),
        inject=injections.send(signal.SIGSTOP, injections.one_rank, IN_STEP),
        first=Expect(code=0, word="finished", says=r"^hang: no progress .* in a step .*stuck: rank 1;", restarts=1),
        second=None,
    ),
    Fault(
        name="hang-in-data",
        kind="hang",
        sentence="a rank that hangs in data loading",
        made="rank 1 sleeps when it asks for the samples of step 5, one restart allowed",
        overrides=(*ONE_RESTART, _SHORT.format("step")),
        acts=(Act(name="hang", place="data", step=5, how="hang", rank=1),),
        first=Expect(code=0, word="finished", says=r"^hang: no progress .* in a step .*stuck: rank 1;", restarts=1),
        second=None,
    ),
    Fault(
        name="hang-before-first-step",
        kind="hang",
        sentence="a rank that hangs before the first step",
        made="rank 1 sleeps between building and training",
        overrides=("launch.timeouts.startup=20",),
        acts=(Act(name="hang", place="start", step=0, how="hang", rank=1),),
        first=Expect(code=100, word="failed", says=r"^hang: no progress .* in its start-up.*stuck: rank 1;"),
        second=FINISHED,
        resumes_after=0,
    ),
    Fault(
        name="hang-in-save",
        kind="hang",
        sentence="a rank that hangs in a save",
        made="rank 0 sleeps when the files of step 6 are written but do not count yet",
        overrides=(_SHORT.format("checkpoint"), _SHORT.format("step")),
        acts=(Act(name="hang", place="save", step=6, how="hang"),),
        first=Expect(code=100, word="failed", says=r"^hang: no progress .* in (checkpoint|a step) .*stuck: rank 0;"),
        second=Expect(code=0, word="finished", says=r"^a checkpoint was set aside \(damaged-6\)"),
    ),
)

FAILURES = (
    Fault(
        name="rank-raises",
        kind="failure",
        sentence="a rank that raises",
        made="rank 1 raises in step 5, once, one restart allowed",
        overrides=ONE_RESTART,
        acts=(Act(name="raise", place="data", step=5, how="raise", rank=1),),
        first=RESTARTED,
        second=None,
    ),
    Fault(
        name="rank-raises-again",
        kind="failure",
        sentence="a rank that raises at the same step after every restart",
        made="rank 1 raises in step 5 after every restart, five restarts allowed",
        overrides=("launch.max_restarts=5",),
        acts=(Act(name="raise", place="data", step=5, how="raise", rank=1, restart=None),),
        first=Expect(code=1, word="failed", says=r"RuntimeError: the drill broke this rank", restarts=1),
    ),
    Fault(
        name="exit-7",
        kind="failure",
        sentence="a rank that exits 7",
        made="rank 1 leaves with code 7 in step 5",
        acts=(Act(name="exit", place="data", step=5, how="exit", rank=1, code=7),),
        first=Expect(code=7, word="failed", says=r"rank 1 ended with exit code 7"),
    ),
    Fault(
        name="exit-0",
        kind="failure",
        sentence="a rank that exits 0 too early",
        made="rank 1 leaves with code 0 in step 5",
        acts=(Act(name="exit", place="data", step=5, how="exit", rank=1, code=0),),
        first=Expect(code=1, word="failed", says=r"rank 1 ended with exit code 0 without a word"),
    ),
    Fault(
        name="out-of-memory",
        kind="memory",
        sentence="out of memory",
        made="in step 5 rank 1 gets an address space limit (RLIMIT_AS) and takes memory until it is refused",
        acts=(Act(name="memory", place="data", step=5, how="memory", rank=1),),
        first=Expect(code=1, word="failed", says=r"rank 1 .*(can't allocate memory|MemoryError|without a word)"),
    ),
)
