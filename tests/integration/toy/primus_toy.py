"""A backend of a few lines for tests of the launcher: it counts steps, meets the other ranks, and fails when told to.

Its own keys (`backend.config.*`): `step_s` (seconds per step), `meet` (collectives and agreed stops, which need torch
where there are several ranks), and `do`: what a rank does in each step, by rank: {"how": "exit", "code": 7};
with "restart" only in that restart, with "step" only after so many steps. `thread` starts one when it is imported,
`missing` imports a module that is not there.
"""

import json
import os
import subprocess
import threading
import time
from pathlib import Path

from primus_hydra.errors import HostError, Problem, UserError
from primus_hydra.runtime.contracts import BackendAdapter, BaseTrainer, StepMetrics


class ToyAdapter(BackendAdapter):
    name = "toy"

    def setup_backend_path(self):
        return None

    def detect_backend_version(self):
        return "1.0"

    def prepare_backend(self):
        if self.job.backend.config.get("missing"):
            import a_module_that_is_not_there  # noqa: F401
        if self.job.backend.config.get("thread"):
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()

    def convert_config(self, context):
        return dict(self.job.backend.config)

    def load_trainer_class(self, stage):
        return ToyTrainer

    def env_defaults(self):
        return {"TOY_DEFAULT": "1"}


class ToyTrainer(BaseTrainer):
    def setup(self):
        self._step = self.context.resume_from or 0
        self._note("setup")

    def init(self):
        if self.native.get("meet"):
            import torch.distributed as dist

            dist.init_process_group("gloo")

    def train(self):
        while self._step < self.job.training.steps:
            time.sleep(self.native.get("step_s", 0.01))
            self._do_as_told()
            self._meet()
            self._step += 1
            self._note(f"step {self._step}")
            if self.context.is_main:
                self.context.metrics.log(StepMetrics(step=self._step, loss=1.0 / self._step, lr=0.1))
            if self._talks and self.context.stop.agreed(self._step):
                break
        self._save()

    def cleanup(self, on_error=False):
        self._note(f"cleanup on_error={on_error}")
        if self.native.get("meet") and not on_error:
            import torch.distributed as dist

            dist.destroy_process_group()

    @property
    def _talks(self):
        return self.native.get("meet") or self.context.world_size == 1

    @property
    def step(self):
        return self._step

    def _save(self):
        if self.context.is_main:
            folder = self.context.paths.checkpoint(self._step)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "state.json").write_text(json.dumps({"step": self._step}))
            self.context.ledger.completed(self._step)

    def _meet(self):
        if self.native.get("meet"):
            import torch
            import torch.distributed as dist

            dist.all_reduce(torch.ones(1))

    def _note(self, what):
        path = Path(os.environ["PRIMUS_RUN_DIR"]) / f"notes-{self.context.rank}.txt"
        with path.open("a") as file:
            file.write(f"{what}\n")

    def _do_as_told(self):
        told = self.native.get("do", {}).get(str(self.context.rank), {})
        if (
            not told
            or told.get("step", self._step) != self._step
            or told.get("restart", self.context.restart) != self.context.restart
        ):
            return
        match told["how"]:
            case "raise":
                raise RuntimeError("the toy broke")
            case "user":
                raise UserError(Problem(key="training.steps", what="the toy dislikes it", hint="use another"))
            case "host":
                raise HostError("the toy needs a bigger machine")
            case "exit":
                os._exit(told["code"])
            case "sysexit":
                raise SystemExit(told["code"])
            case "kill":
                os.kill(os.getpid(), 9)
            case "tell":
                told = {"environment": dict(os.environ), "env": self.job.env, "group": self.job.run.group}
                told["config"] = dict(self.native)
                file = self.context.paths.root / f"told-{self.context.rank}.json"
                file.write_text(json.dumps(told), encoding="utf-8")
            case "helper":
                subprocess.Popen(["sleep", "600", str(self.context.paths.root)])
            case "hang":
                self._note("hanging")
                time.sleep(600)
