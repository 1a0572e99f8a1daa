"""The command line of a container: what each engine is told, and what stands against it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from primus_hydra.config.schema import ContainerConfig
from primus_hydra.launch import container_check
from primus_hydra.launch.container import ContainerHost, Contents, container_argv, container_name
from primus_hydra.launch.container_check import container_problems, engine_problems
from primus_hydra.launch.container_mounts import Mount, combine, needed_mounts, parse_mounts
from tests.support import make_job

AMD = {"platform.name": "mi300x", "platform.vendor": "amd", "platform.gpus_per_node": 8}
NVIDIA = {"platform.name": "h100", "platform.vendor": "nvidia", "platform.gpus_per_node": 8}
HOST = ContainerHost(uid=1000, gid=100)
CONTENTS = Contents(
    name="ours",
    run_dir="/runs/a",
    id_file="/runs/a/attempts/1/container.id",
    mounts=(Mount.same("/runs/a", read_only=False), Mount(source="/a,b", target="/data", read_only=True)),
    workdir="/work",
    argv=("python3", "-P", "/code/contained.py", "rank"),
)


def argv(kind: str, platform: dict[str, Any] | None = None, host: ContainerHost = HOST, **keys: Any) -> list[str]:
    job = make_job(platform)
    config = ContainerConfig(kind=kind, image="image:1", **keys)  # type: ignore[arg-type]
    return list(container_argv(config, job.platform, host, CONTENTS))


def after(words: list[str], flag: str) -> list[str]:
    """Return what follows each use of a flag."""
    return [words[place + 1] for place, word in enumerate(words) if word == flag]


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_an_engine_removes_what_it_ran_and_shares_what_ranks_need_of_the_node(kind: str):
    words = argv(kind)
    assert words[:6] == [kind, "run", "--rm", "--interactive", "--name", "ours"]
    assert {"--pid=host", "--network=host", "--ipc=host"} <= set(words)
    assert words[-6:] == ["--entrypoint", "python3", "image:1", "-P", "/code/contained.py", "rank"]
    assert after(words, "--workdir") == ["/work"]
    assert after(words, "--mount") == [
        "type=bind,source=/runs/a,target=/runs/a",
        'type=bind,"source=/a,b",target=/data,readonly',
    ]


@pytest.mark.parametrize("kind", ["docker", "podman", "apptainer", "enroot"])
def test_nothing_is_privileged_unless_the_user_says_so(kind: str):
    for platform in (None, AMD, NVIDIA):
        words = " ".join(argv(kind, platform))
        assert not any(word in words for word in ("privileged", "cap-add", "seccomp", "add-caps", "fakeroot"))
    assert "--cap-add=SYS_PTRACE" in argv(kind, extra_args=["--cap-add=SYS_PTRACE"])


def test_files_belong_to_the_caller():
    assert after(argv("docker"), "--user") == ["1000:100"]
    assert "--userns=keep-id" in argv("podman")
    assert after(argv("podman", host=ContainerHost(uid=0, gid=0)), "--user") == ["0:0"]
    assert after(argv("podman", command=["sudo", "podman"]), "--user") == ["1000:100"]
    assert after(argv("docker", user="trainer"), "--user") == ["trainer"]


def test_amd_gpus_are_given_as_devices_with_the_groups_that_may_use_them():
    host = dataclasses.replace(HOST, device_groups=(44, 109), infiniband=True)
    words = argv("docker", AMD, host)
    assert after(words, "--device") == ["/dev/kfd", "/dev/dri", "/dev/infiniband"]
    assert after(words, "--group-add") == ["44", "109"]
    assert after(words, "--ulimit") == ["memlock=-1:-1"]
    assert after(argv("podman", AMD, host), "--group-add") == ["keep-groups"]


def test_nvidia_gpus_are_given_as_each_engine_knows_them():
    assert after(argv("docker", NVIDIA), "--gpus") == ["all"]
    assert after(argv("podman", NVIDIA), "--device") == ["nvidia.com/gpu=all"]
    assert "--nv" in argv("apptainer", NVIDIA)
    assert "NVIDIA_VISIBLE_DEVICES=all" in argv("enroot", NVIDIA)


@pytest.mark.parametrize("kind", ["docker", "podman", "apptainer", "enroot"])
def test_a_cpu_job_and_a_job_without_devices_get_none(kind: str):
    for words in (argv(kind), argv(kind, AMD, devices="none"), argv(kind, NVIDIA, devices="none")):
        assert not {"--device", "--gpus", "--nv", "--env"} & set(words)


def test_a_list_of_devices_is_taken_as_it_is():
    assert after(argv("docker", AMD, devices=["/dev/dri/renderD128"]), "--device") == ["/dev/dri/renderD128"]
    assert "type=bind,source=/dev/fuse,target=/dev/fuse" in argv("apptainer", devices=["/dev/fuse"])


def test_a_shared_memory_of_its_own_replaces_the_nodes():
    words = argv("docker", shm_size="64g")
    assert after(words, "--shm-size") == ["64g"]
    assert "--ipc=host" not in words


def test_apptainer_brings_neither_the_callers_environment_nor_his_home():
    words = argv("apptainer", command=["singularity"])
    assert words[:6] == ["singularity", "exec", "--cleanenv", "--no-home", "--pwd", "/work"]
    assert words[-5:] == ["image:1", *CONTENTS.argv]
    assert 'type=bind,"source=/a,b",target=/data,ro' in words


def test_enroot_reads_mounts_as_lines_of_fstab():
    contents = dataclasses.replace(CONTENTS, mounts=(Mount(source="/a b", target="/c", read_only=True),))
    config = ContainerConfig(kind="enroot", image="image.sqsh")
    words = list(container_argv(config, make_job().platform, HOST, contents))
    assert after(words, "--mount") == ["/a\\040b:/c:none:x-create=auto,rbind,ro"]
    assert words[-6:] == ["--", "image.sqsh", *CONTENTS.argv]


def test_pyxis_starts_no_process_of_its_own():
    with pytest.raises(ValueError, match="pyxis"):
        container_argv(ContainerConfig(kind="pyxis", image="x"), make_job().platform, HOST, CONTENTS)


def test_a_name_fits_the_engines_and_belongs_to_one_run_attempt_and_node():
    name = container_name(Path("/runs/é x" + "y" * 300), 2, 1)
    assert name.isascii()
    assert len(name) < 100
    others = {container_name(Path(place), 2, node) for place in ("/a/run", "/b/run") for node in (0, 1)}
    assert len(others) == 4


def test_mounts_are_read_with_every_mistake():
    mounts, problems = parse_mounts(
        ["/a", "/b:/c/", "/d:/e:ro", "rel:/x", "/f:g", "/h:/", "/i:/j:rx", "/k:/c", "/l:/m:ro:z"]
    )
    assert mounts == [
        Mount(source="/a", target="/a"),
        Mount(source="/b", target="/c"),
        Mount(source="/d", target="/e", read_only=True),
    ]
    said = [problem.what for problem in problems]
    assert len(said) == 6
    assert all(problem.hint for problem in problems)
    assert "mounted on /c already" in said[4]


def test_what_lies_in_a_mounted_folder_is_not_mounted_again():
    users = [Mount(source="/data", target="/data")]
    needed = [
        Mount.same("/data/tokens", read_only=True),
        Mount.same("/code", read_only=True),
        Mount.same("/code/runs/a", read_only=False),
        Mount.same("/code/conf", read_only=True),
    ]
    mounts, problems = combine(users, needed)
    assert [mount.target for mount in mounts] == ["/code", "/data", "/code/runs/a"]
    assert not problems


def test_a_users_mount_in_the_place_of_what_the_job_needs_is_refused():
    for users in (Mount(source="/other", target="/runs/a"), Mount.same("/runs/a", read_only=True)):
        _, problems = combine([users], [Mount.same("/runs/a", read_only=False)])
        assert "where the job needs /runs/a, to write in it" in problems[0].what


def test_a_job_sees_its_run_cache_and_sources():
    job = make_job(
        {
            "data.kind": "text",
            "data.path": ["/data/books", "/data/web/*/part-*.txt"],
            "tokenizer.kind": "hf",
            "tokenizer.path": "/tokenizers/a",
            "init_from": "hf:/models/a",
        }
    )
    mounts = needed_mounts(job, run_dir=Path("/runs/a"), cache=Path("/cache"))
    assert {mount.target for mount in mounts if not mount.read_only} == {"/runs/a", "/cache"}
    read = {mount.target for mount in mounts if mount.read_only}
    assert read == {"/data/books", "/data/web", "/tokenizers/a", "/models/a"}


def test_indexed_data_is_seen_with_its_folder():
    job = make_job({"data.kind": "megatron", "data.path": ["0.3", "/data/web_text", "0.7", "/data/books/all"]})
    targets = {mount.target for mount in needed_mounts(job, run_dir=Path("/r"), cache=Path("/c"))}
    assert targets == {"/r", "/c", "/data", "/data/books"}


def problems_of(**keys: Any) -> list[str]:
    job = make_job({f"launch.container.{name}": value for name, value in keys.items()})
    return [str(problem) for problem in container_problems(job)]


def test_no_container_has_no_problem():
    assert problems_of(kind="none", mounts=["nonsense"]) == []


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path):
    said = problems_of(
        kind="apptainer",
        mounts=["/tmp:relative", f"{tmp_path}/absent", "/tmp", "/usr:/tmp"],
        devices=["/dev/kfd"],
        shm_size="64g",
        network="bridge",
        workdir="here",
    )
    text = "\n".join(said)
    assert len(said) == 8
    for part in ("needs an image", ":relative", "on /tmp already", "absent to mount", "has no GPU", "shm_size"):
        assert part in text
    assert "launch.container.network" in text
    assert "launch.container.workdir" in text


def test_paths_of_nodes_are_taken_on_trust():
    job = make_job(
        {
            "launch.container.kind": "docker",
            "launch.container.image": "x",
            "launch.container.mounts": ["/only/on/nodes"],
        }
    )
    assert container_problems(job, here=False) == []
    assert len(container_problems(job)) == 1


def test_an_image_that_its_kind_cannot_start_is_refused(tmp_path: Path):
    assert "enroot import docker://x" in problems_of(kind="enroot", image="docker://x")[0]
    assert "there is no" in problems_of(kind="apptainer", image=f"{tmp_path}/absent.sif")[0]
    assert problems_of(kind="apptainer", image="docker://x") == []
    assert "plugin of srun" in problems_of(kind="pyxis", image="docker://x")[0]


def test_a_word_for_devices_that_is_none_is_answered_with_the_list():
    assert "launch.container.devices=[/dev/kfd]" in problems_of(kind="docker", image="x", devices="/dev/kfd")[0]


def test_a_missing_engine_or_device_is_what_the_machine_lacks(monkeypatch: pytest.MonkeyPatch):
    keys = {
        "launch.container.kind": "podman",
        "launch.container.image": "x",
        "launch.container.devices": ["/dev/none-such"],
    }
    monkeypatch.setattr(container_check.shutil, "which", lambda program: None)
    lacking = engine_problems(make_job(keys))
    assert "this machine has no podman" in lacking[0].what
    assert "install podman" in (lacking[0].hint or "")
    assert "/dev/none-such" in lacking[1].what
    assert "no nerdctl" in engine_problems(make_job({**keys, "launch.container.command": ["nerdctl"]}))[0].what
