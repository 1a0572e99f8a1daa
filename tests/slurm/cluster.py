"""A real Slurm of several nodes on this machine, for root, without systemd and without cgroups.

Each host (the controller `ctl`, which is the login node too, and `node1`, `node2`, ...) is a network namespace with a
name of its own, joined by a bridge in yet another namespace, so that the machine's own network is left alone. Names
hold the number of the process that made them: clusters of several sessions never meet, and what a killed session left
is taken away by the next one. Everything is ended by its process id.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.slurm.conf import SLURM_CONF

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "ip", "nsenter", "unshare")
PACKAGES = "slurm-wlm slurm-wlm-basic-plugins slurm-client munge iproute2 util-linux"
GPUS = 8
_PREFIX = "phs"
_NET = "10.213.77"
_UP_WITHIN_S = 60.0
# slurmd 22.05 wants a cgroup tree even if it uses none: an empty one in a private mount namespace satisfies it.
_ENTER = 'hostname "$0" && mount --bind "$1" /etc/hosts && mount -t tmpfs none /sys/fs/cgroup && shift && exec "$@"'


def why_not() -> str | None:
    """Return why no cluster can be made here, None if it can."""
    if os.geteuid() != 0:
        return "a cluster of namespaces needs root"
    missing = [program for program in PROGRAMS if shutil.which(program, path=_search_path()) is None]
    return f"{', '.join(missing)} not installed: apt-get install {PACKAGES}" if missing else None


@dataclass
class Cluster:
    """The cluster; use it as a context manager. `more` is text for slurm.conf, `grace_s` that of the partition spot."""

    nodes: int = 4
    grace_s: int = 0
    more: str = ""
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix=f"{_PREFIX}-")))
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __enter__(self) -> Cluster:
        sweep()
        try:
            self._make_folders()
            self._make_hosts()
            self._start("munged", "ctl", self._munged())
            self.start_controller()
            for node in self.names:
                self.boot(node)
            self.wait_idle()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def names(self) -> list[str]:
        """The nodes."""
        return [f"node{number}" for number in range(1, self.nodes + 1)]

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, with which programs of Slurm find this cluster."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SBATCH"))}
        return kept | {"SLURM_CONF": str(self._etc / "slurm.conf"), "PATH": _search_path()}

    @property
    def network(self) -> Path:
        """The network namespace of the login node."""
        return Path("/run/netns") / _space(os.getpid(), "ctl")

    def argv(self, command: Sequence[str], host: str = "ctl") -> list[str]:
        """Return a command as it runs on a host; each step replaces itself, so the process is the command's own."""
        enter = ["nsenter", f"--net=/run/netns/{_space(os.getpid(), host)}", "unshare", "--uts", "--mount"]
        return [*enter, "sh", "-c", _ENTER, host, str(self._etc / "hosts"), *command]

    def run(self, *command: str, host: str = "ctl", timeout: float = 60) -> str:
        """Run a command on a host and return what it printed; raises CalledProcessError, with its words."""
        done = subprocess.run(
            self.argv(command, host),
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}"
        return done.stdout

    def state_of(self, job: str) -> str:
        """Return Slurm's word for a job; empty if it knows it no more."""
        done = subprocess.run(
            self.argv(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]),
            env=self.environment,
            text=True,
            capture_output=True,
            check=False,
        )
        return done.stdout.strip()

    def configure(self, more: str = "") -> None:
        """Add other text to slurm.conf than before, and let every daemon read it."""
        self.more = more
        (self._etc / "slurm.conf").write_text(self._conf())
        self.run("scontrol", "reconfigure")

    def processes(self, host: str) -> set[int]:
        """Return the processes that live on a host."""
        return {int(pid) for pid in _ip("netns", "pids", _space(os.getpid(), host)).split()}

    def start_controller(self) -> None:
        """Start slurmctld; it keeps its jobs over a restart."""
        self._start("slurmctld", "ctl", ["slurmctld", "-D", "-f", str(self._etc / "slurm.conf")])

    @property
    def has_controller(self) -> bool:
        """Whether slurmctld runs."""
        return "slurmctld" in self._daemons

    def stop_controller(self) -> None:
        """End slurmctld; jobs that run go on."""
        self._end("slurmctld")

    def boot(self, node: str) -> None:
        """Start the slurmd of a node."""
        self._start(f"slurmd.{node}", node, ["slurmd", "-D", "-N", node, "-f", str(self._etc / "slurm.conf")])

    def crash(self, node: str) -> None:
        """Kill every process of a node at once, as when it loses its power."""
        _kill_all(_space(os.getpid(), node))
        self._daemons.pop(f"slurmd.{node}").wait(10)

    def cut(self, node: str) -> None:
        """Take the link of a node down."""
        _ip("-n", _space(os.getpid(), "sw"), "link", "set", f"v-{node}", "down")

    def heal(self, node: str) -> None:
        """Take the link of a node up again."""
        _ip("-n", _space(os.getpid(), "sw"), "link", "set", f"v-{node}", "up")

    def wait_idle(self) -> None:
        """Wait until every node is ready for jobs; fails with the daemons' last words."""
        end = time.monotonic() + _UP_WITHIN_S
        while time.monotonic() < end:
            if len(self.ready()) >= self.nodes:
                return
            time.sleep(0.1)
        logs = [f"{log.name}: {log.read_text(errors='replace')[-800:]}" for log in self._logs.iterdir()]
        raise AssertionError("the cluster did not come up\n" + "\n".join(logs))

    def ready(self) -> list[str]:
        """Return the nodes that may have jobs."""
        sinfo = ["sinfo", "--noheader", "--Node", "--partition=main", "--states=idle,mix,alloc", "--format=%N"]
        done = subprocess.run(self.argv(sinfo), env=self.environment, text=True, capture_output=True, check=False)
        return done.stdout.split()

    def cancel_all(self) -> None:
        """End all jobs, so that the next test finds the nodes free."""
        self.run("scancel", "--full", "--user=root")
        end = time.monotonic() + 30
        while self.run("squeue", "--noheader", "--format=%A").split():
            assert time.monotonic() < end, self.run("squeue")
            time.sleep(0.1)

    def close(self) -> None:
        """End everything and leave nothing; may be called twice."""
        if "slurmctld" in self._daemons:
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                self.run("scancel", "--full", "--user=root", timeout=15)
        for name in list(self._daemons):
            self._end(name)
        _remove_spaces(os.getpid())
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _etc(self) -> Path:
        return self.folder / "etc"

    @property
    def _logs(self) -> Path:
        return self.folder / "log"

    def _make_folders(self) -> None:
        self.folder.chmod(0o755)
        for name in ("etc", "log", "run", "state", "dev", *(f"spool/{node}" for node in self.names)):
            (self.folder / name).mkdir(parents=True)
        hosts = [f"{_NET}.1 ctl", *(f"{_NET}.{10 + number} {node}" for number, node in enumerate(self.names, 1))]
        (self._etc / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{line}\n" for line in hosts))
        key = self._etc / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for number in range(GPUS):  # slurmd wants character devices, and asks nothing of them
            os.mknod(self.folder / "dev" / f"gpu{number}", 0o20666, os.makedev(1, 3))
        devices = f"{self.folder}/dev/gpu[0-{GPUS - 1}]"
        (self._etc / "gres.conf").write_text(f"AutoDetect=off\nNodeName=node[1-{self.nodes}] Name=gpu File={devices}\n")
        (self._etc / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (self._etc / "slurm.conf").write_text(self._conf())

    def _conf(self) -> str:
        addresses = (f"NodeName={node} NodeAddr={_NET}.{10 + number}" for number, node in enumerate(self.names, 1))
        return SLURM_CONF.format(
            folder=self.folder,
            net=_NET,
            grace=self.grace_s,
            gpus=GPUS,
            nodes="\n".join(f"{line} NodeHostname={line.split()[0].partition('=')[2]}" for line in addresses),
            more=self.more,
        )

    def _munged(self) -> list[str]:
        files = {"key-file": "etc/munge.key", "socket": "run/munge.sock", "pid-file": "run/munged.pid"}
        files |= {"log-file": "log/munged.log", "seed-file": "run/munged.seed"}
        return ["munged", "--foreground", "--force", *(f"--{name}={self.folder / at}" for name, at in files.items())]

    def _make_hosts(self) -> None:
        switch = _space(os.getpid(), "sw")
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "br0", "type", "bridge")
        _ip("-n", switch, "link", "set", "br0", "up")
        for host, last in (("ctl", 1), *((node, 10 + number) for number, node in enumerate(self.names, 1))):
            space, link = _space(os.getpid(), host), f"v-{host}"
            _ip("netns", "add", space)
            _ip("link", "add", link, "netns", switch, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", switch, "link", "set", link, "master", "br0", "up")
            _ip("-n", space, "addr", "add", f"{_NET}.{last}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", space, "link", "set", device, "up")

    def _start(self, name: str, host: str, command: list[str]) -> None:
        with (self._logs / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                self.argv(command, host),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if name == "munged":
            _wait_for(self.folder / "run" / "munge.sock")

    def _end(self, name: str) -> None:
        daemon = self._daemons.pop(name)
        daemon.terminate()
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait(10)


def sweep() -> None:
    """Take away what sessions left that were killed."""
    for name in _spaces():
        owner = name.removeprefix(_PREFIX).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            _remove_spaces(int(owner))


def _remove_spaces(owner: int) -> None:
    for space in [name for name in _spaces() if name.startswith(f"{_PREFIX}{owner}-")]:
        _kill_all(space)
        _ip("netns", "del", space)


def _kill_all(space: str) -> None:
    """Kill the processes that live in a namespace of ours, and those that they start meanwhile."""
    while pids := [int(pid) for pid in _ip("netns", "pids", space).split() if int(pid) != os.getpid()]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _spaces() -> list[str]:
    return [line.split()[0] for line in _ip("netns", "list").splitlines() if line.startswith(_PREFIX)]


def _space(owner: int, host: str) -> str:
    return f"{_PREFIX}{owner}-{host}"


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], env={"PATH": _search_path()}, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout


def _search_path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _wait_for(path: Path) -> None:
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not come"
        time.sleep(0.02)
