"""Every path of a run. No other module joins file names below a run directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunPaths:
    """The run directory of the run contract."""

    root: Path

    @property
    def config(self) -> Path:
        """Resolved configuration, as the ranks read it."""
        return self.root / "config.yaml"

    @property
    def provenance(self) -> Path:
        """Where each value of the configuration came from."""
        return self.root / "provenance.json"

    @property
    def metrics(self) -> Path:
        """One JSON object per logged step."""
        return self.root / "metrics.jsonl"

    @property
    def state(self) -> Path:
        """State of the run: running, saved, finished, failed; written by the launcher only."""
        return self.root / "state.json"

    @property
    def goodput(self) -> Path:
        """Where the wall time of the run went, over all attempts."""
        return self.root / "goodput.json"

    @property
    def lock(self) -> Path:
        """Lock that keeps a second live attempt out."""
        return self.root / "lock"

    @property
    def logs(self) -> Path:
        """One log per rank, and the launcher's."""
        return self.root / "logs"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints, one folder `step-N` each."""
        return self.root / "checkpoints"

    @property
    def plots(self) -> Path:
        """Pictures for people."""
        return self.root / "plots"

    @property
    def trackers(self) -> Path:
        """Files of trackers that work offline."""
        return self.root / "trackers"

    @property
    def export(self) -> Path:
        """Final weights in Hugging Face format."""
        return self.root / "export"

    @property
    def profiles(self) -> Path:
        """Traces and memory snapshots of a profiler."""
        return self.root / "profiles"

    @property
    def collectives(self) -> Path:
        """What a communication library recorded of the collectives before one of them timed out."""
        return self.logs / "collectives"

    @property
    def attempts(self) -> Path:
        """One folder per attempt."""
        return self.root / "attempts"

    @property
    def submissions(self) -> Path:
        """One folder per job that was given to a scheduler."""
        return self.root / "submissions"

    @property
    def submissions_lock(self) -> Path:
        """Lock that keeps two commands from submitting the run at once."""
        return self.submissions / "lock"

    def submission_numbers(self) -> list[int]:
        """Return the numbers of all submissions that left a folder, ascending; raises OSError."""
        return sorted(int(folder.name) for folder in self.submissions.glob("*") if _is_number(folder.name))

    def submission(self, number: int) -> SubmissionPaths:
        """Paths of submission `number`, counted from 1."""
        return SubmissionPaths(self.submissions / str(number))

    def attempt(self, number: int) -> AttemptPaths:
        """Paths of attempt `number`, counted from 1."""
        return AttemptPaths(self.attempts / str(number))

    def attempt_numbers(self) -> list[int]:
        """Return the numbers of all attempts that left a folder, ascending; raises OSError."""
        return sorted(int(folder.name) for folder in self.attempts.glob("*") if _is_number(folder.name))

    def rank_logs(self) -> dict[int, Path]:
        """Return the logs that ranks have begun, by rank; raises OSError."""
        ranks = (log.stem.removeprefix("rank-") for log in self.logs.glob("rank-*.log"))
        return {rank: self.rank_log(rank) for rank in sorted(int(text) for text in ranks if _is_number(text))}

    def damaged_checkpoints(self) -> list[Path]:
        """Return the checkpoints that were set aside; raises OSError."""
        return sorted(self.checkpoints.glob("damaged-*"))

    def rank_log(self, rank: int) -> Path:
        """Log of one rank, over all attempts."""
        return self.logs / f"rank-{rank}.log"

    @property
    def agent_log(self) -> Path:
        """Log of the agent that starts the ranks, over all attempts; ranks write here until they open their own."""
        return self.agent_log_of(0)

    def agent_log_of(self, node: int) -> Path:
        """Log of the agent of one node of the job."""
        return self.logs / f"agent{_node_suffix(node)}.log"

    def hooks_log(self, node: int) -> Path:
        """What the hooks of one node of the job printed, over all attempts."""
        return self.logs / f"hooks{_node_suffix(node)}.log"

    def checkpoint(self, step: int) -> Path:
        """Folder of the checkpoint at `step`."""
        return self.checkpoints / f"step-{step}"


@dataclass(frozen=True)
class SubmissionPaths:
    """One job that was given to a scheduler."""

    root: Path

    @property
    def script(self) -> Path:
        """The batch script, whole."""
        return self.root / "script.sh"

    @property
    def config(self) -> Path:
        """Resolved configuration, as it was submitted."""
        return self.root / "config.yaml"

    @property
    def log(self) -> Path:
        """What the batch script says: its setup, and the program that starts the tasks."""
        return self.root / "job.log"

    def node_log(self, node: int) -> Path:
        """What the task of one node says, nodes counted from 0."""
        return self.root / f"node-{node}.log"

    def logs(self) -> list[Path]:
        """Return the logs that there are, the batch script's first; raises OSError."""
        nodes = {int(log.stem.removeprefix("node-")): log for log in self.root.glob("node-*.log") if _is_node(log)}
        return [*([self.log] if self.log.exists() else []), *(nodes[node] for node in sorted(nodes))]

    @property
    def stop(self) -> Path:
        """Appears when somebody asks the job to save and end: it must not go back into the queue then."""
        return self.root / "stop.json"

    @property
    def requeue(self) -> Path:
        """Appears when the job is to go back into the queue, and its task cannot ask the scheduler itself."""
        return self.root / "requeue"

    @property
    def record(self) -> Path:
        """The scheduler's number of the job, and when it was given which code."""
        return self.root / "submission.json"

    @property
    def command(self) -> Path:
        """The command that was typed."""
        return self.root / "command.json"

    @property
    def provenance(self) -> Path:
        """Sources of the values of the job."""
        return self.root / "provenance.json"


@dataclass(frozen=True)
class AttemptPaths:
    """One start of the run by a launcher."""

    root: Path

    @property
    def spec(self) -> Path:
        """What the ranks of this attempt are given."""
        return self.root / "spec.json"

    @property
    def provenance(self) -> Path:
        """Sources of the values of this attempt's configuration."""
        return self.root / "provenance.json"

    @property
    def errors(self) -> Path:
        """Error files of failed ranks."""
        return self.root / "errors"

    def agent(self, node: int) -> Path:
        """Exit codes of failed ranks, as the agent of a node saw them."""
        return self.root / f"agent{_node_suffix(node)}.json"

    def preload(self, node: int) -> Path:
        """What the fork server of a node prepared."""
        return self.root / f"preload{_node_suffix(node)}.json"

    def hooks(self, node: int) -> Path:
        """What became of the hooks that ran on a node, and what they set."""
        return self.root / f"hooks{_node_suffix(node)}.json"

    def node_end(self, node: int) -> Path:
        """How the ranks of one node of several ended."""
        return self.root / "ends" / f"node-{node}.json"

    def container_id(self, node: int) -> Path:
        """Id of the container of a node, as its engine gave it."""
        return self.root / f"container{_node_suffix(node)}.id"

    def container_begun(self, node: int) -> Path:
        """Appears when the container of a node runs."""
        return self.root / f"container{_node_suffix(node)}.begun"

    @property
    def patches(self) -> Path:
        """What became of each patch on rank 0."""
        return self.root / "patches.json"

    @property
    def times(self) -> Path:
        """When the attempt began and ended, and the seconds of its ranks in each section."""
        return self.root / "times.json"

    @property
    def command(self) -> Path:
        """The command that began the attempt."""
        return self.root / "command.json"

    @property
    def ended(self) -> Path:
        """How the attempt ended; an attempt without it goes on, or died with its launcher."""
        return self.root / "ended.json"

    @property
    def unsaved(self) -> Path:
        """Why saves are skipped, while they are."""
        return self.root / "unsaved.json"

    @property
    def hang(self) -> Path:
        """What was found of the last hang."""
        return self.root / "hang.json"

    def stacks(self, rank: int) -> Path:
        """Stacks of all threads of a rank at the moment of the last hang."""
        return self.root / "stacks" / f"rank-{rank}.txt"

    def nodes(self) -> list[Path]:
        """Return the files that tell where the ranks of each node are; raises OSError."""
        return sorted(self.node("x").parent.glob("*.json"))

    def outcomes(self) -> list[Path]:
        """Return the outcomes that ranks have written; raises OSError."""
        return sorted(self.outcome(0).parent.glob("rank-*.json"))

    def node(self, name: str) -> Path:
        """Where the ranks of one node are: section, step and seconds since their last beat."""
        return self.root / "nodes" / f"{name}.json"

    def pid(self, rank: int) -> Path:
        """Process id of rank `rank` and number of its restart, written by itself as soon as it can take a signal."""
        return self.root / "pids" / f"rank-{rank}"

    def outcome(self, rank: int) -> Path:
        """What rank `rank` says of its end; a rank that ends without it has failed."""
        return self.root / "outcomes" / f"rank-{rank}.json"


def _node_suffix(node: int) -> str:
    return f"-node-{node}" if node else ""


def _is_node(log: Path) -> bool:
    return _is_number(log.stem.removeprefix("node-"))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


@dataclass(frozen=True)
class SweepPaths:
    """The folder of a sweep, in which the runs of its points lie."""

    root: Path

    @property
    def record(self) -> Path:
        """What became of each point, for programs."""
        return self.root / "sweep.json"

    @property
    def table(self) -> Path:
        """The same as a table, one column for each key that is swept."""
        return self.root / "sweep.csv"

    @property
    def lock(self) -> Path:
        """Lock for the moment in which both are written."""
        return self.root / "sweep.lock"

    def error(self, point: str) -> Path:
        """Why a point could not be started, whole; a point that was started has logs of its own."""
        return self.root / "errors" / f"{point}.log"
