"""The code of a job: this project, and the packages that its targets name, from where this process imports them.

A package that is developed (a checkout, an editable install, a snapshot) is taken with the folder it is imported from:
a submitted job gets a copy, a container a mount. One that is installed shares its folder with packages that belong to
the machine or the image: a submitted job finds it where it is, and a container gets it alone, in a folder of its own.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from primus_hydra.config.allow import ENTRY_POINT_GROUP, OWN_PACKAGE
from primus_hydra.config.build import to_tree
from primus_hydra.config.schema import JobConfig
from primus_hydra.launch.container_mounts import Mount
from primus_hydra.run.snapshot import Snapshot, take_snapshot

ALONE = "/opt/primus-hydra-code"
"""Where a container has packages without the folder that they are installed in."""


@dataclass(frozen=True, kw_only=True)
class Code:
    """Mounts that bring the code, and the import path for it in the container."""

    mounts: tuple[Mount, ...]
    python_path: tuple[str, ...]

    def module_file(self, module: ModuleType) -> str:
        """Return the path in the container of a module of this project."""
        file = Path(inspect.getfile(module))
        root = file.parents[len(module.__name__.split(".")) - 1]
        inside = ALONE if _is_installed(root) else str(root)
        return f"{inside}/{file.relative_to(root)}"


def code_of(job: JobConfig) -> Code:
    """Return the code of a job: this project, and the packages that its targets name."""
    packages = [OWN_PACKAGE, *target_packages(to_tree(job))]
    roots = {package: root for package in packages if (root := package_root(package)) is not None}
    developed = code_roots(job)
    alone = [_alone(root / package) for package, root in roots.items() if _is_installed(root)]
    declared = [_alone(folder) for folder in _declarations(roots)]
    return Code(
        mounts=(*(Mount.same(root, read_only=True) for root in developed), *alone, *declared),
        python_path=(*map(str, developed), *([ALONE] if alone or declared else [])),
    )


def code_roots(job: JobConfig) -> list[Path]:
    """Return the folders from which developed packages of the job are imported, this project's first."""
    packages = [OWN_PACKAGE, *target_packages(to_tree(job))]
    roots = (package_root(package) for package in packages)
    return list(dict.fromkeys(root for root in roots if root is not None and not _is_installed(root)))


def snapshot_code(job: JobConfig, into: Path, *, without: Path) -> tuple[Snapshot, ...]:
    """Copy the developed code of a job that is to be submitted; nothing with `launch.snapshot=false`.

    All jobs that one process submits get the same copy. Arguments and errors are those of `take_snapshot`.
    """
    return _taken(tuple(code_roots(job)), into, without) if job.launch.snapshot else ()


@functools.cache
def _taken(roots: tuple[Path, ...], into: Path, without: Path) -> tuple[Snapshot, ...]:
    return tuple(take_snapshot(root, into, without=[without]) for root in roots)


def target_packages(tree: object) -> list[str]:
    """Return the top-level packages that a resolved tree names, apart from this one, each once and sorted."""
    return sorted({name.partition(".")[0] for name in _targets(tree)} - {OWN_PACKAGE})


def package_root(package: str) -> Path | None:
    """Return the folder from which a package is imported; None for one that is not here."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or ())
    if places:
        return Path(places[0]).absolute().parent
    return Path(spec.origin).absolute().parent if spec.origin and spec.has_location else None


def _targets(tree: object) -> Iterator[str]:
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            if name in ("_target_", "trainer") and isinstance(value, str):
                yield value
            yield from _targets(value)
    elif isinstance(tree, Sequence) and not isinstance(tree, str):
        for value in tree:
            yield from _targets(value)


def _declarations(packages: Iterable[str]) -> Iterator[Path]:
    """Yield the metadata folders that declare users' packages, where they are not in a mounted folder anyway."""
    wanted = set(packages) - {OWN_PACKAGE}
    for entry in entry_points(group=ENTRY_POINT_GROUP) if wanted else ():
        folder = getattr(entry.dist, "_path", None)  # the public interface tells names of files only
        if entry.value.partition(".")[0] in wanted and isinstance(folder, Path) and folder.is_dir():
            yield folder.absolute()


def _alone(path: Path) -> Mount:
    file = path if path.is_dir() or path.suffix else path.with_suffix(".py")
    return Mount(source=str(file), target=f"{ALONE}/{file.name}", read_only=True)


def _is_installed(root: Path) -> bool:
    places = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return root.resolve() in places or root.name in ("site-packages", "dist-packages")
