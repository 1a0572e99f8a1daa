"""`task=help`: explain keys, nodes and groups from the schema, with the values that this command gives them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from primus_hydra.config.composed import Composed
from primus_hydra.config.key_table import KeyRow, NodeRow, job_nodes, job_rows, plain
from primus_hydra.config.options import TASK, Option, all_folders, group_options, task_rows
from primus_hydra.config.resolve import flatten
from primus_hydra.config.schema import key
from primus_hydra.config.suggest import key_hint
from primus_hydra.errors import ExitCode, Problem, UserError
from primus_hydra.tasks.contract import Task
from primus_hydra.ui.key_text import Current, key_lines, node_lines, options_lines


class Help(Task):
    """Explain a key, a node of keys or a group; without one, list the nodes."""

    name: ClassVar[str] = "help"
    slurm: ClassVar[Literal["submits", "ignores"] | None] = "ignores"

    @dataclass(frozen=True, kw_only=True)
    class Options:
        """Options of `task=help`."""

        key: str | None = key(
            None, "A key, a node or a group to explain (optimizer, optimizer.lr); null lists the nodes."
        )

    options: Options

    def run(self, composed: Composed) -> int:
        """Print the explanation; raises UserError with the nearest names for a key that is not there."""
        asked = self.options.key
        lines = _overview() if asked is None else _explain(asked.rstrip("."), composed)
        print("\n".join(lines))
        return int(ExitCode.DONE)


def _overview() -> Iterator[str]:
    nodes = [node for node in job_nodes() if node.node and "." not in node.node]
    width = max(len(node.node) for node in nodes) + 2
    yield "Nodes of the configuration; task.key=NODE lists the keys of one, task.key=NODE.KEY explains one:"
    yield ""
    yield from (f"  {node.node:<{width}}{node.doc}" for node in nodes)
    yield ""
    yield f"Keys outside every node: {', '.join(row.key for row in job_nodes()[0].rows)}"


def _explain(asked: str, composed: Composed) -> Iterator[str]:
    nodes = {node.node: node for node in job_nodes()}
    groups = group_options(all_folders())
    row = job_rows().get(asked) or _free(asked)
    if row is None and asked not in nodes and asked not in groups:
        raise UserError(_unknown(asked, list(nodes), list(groups)))
    parts = []
    if row is not None:
        parts.append(key_lines(row, _current(composed).get(asked)))
    if asked in nodes:
        parts.append(_node(nodes[asked], list(nodes.values()), composed))
    if asked in groups:
        parts.append(options_lines(asked, groups[asked], composed.choices.get(asked)))
    if asked == TASK:
        parts += [node_lines(_task_node(option), [], {}) for option in groups.get(TASK, []) if task_rows(option)]
    for number, part in enumerate(parts):
        yield from ([""] if number else [])
        yield from part


def _node(node: NodeRow, nodes: list[NodeRow], composed: Composed) -> Iterator[str]:
    below = [other for other in nodes if other.node.rpartition(".")[0] == node.node and other.node]
    return node_lines(node, below, _current(composed))


def _task_node(option: Option) -> NodeRow:
    return NodeRow(node=f"{TASK}={option.name}", doc=option.doc, rows=tuple(task_rows(option)))


def _free(asked: str) -> KeyRow | None:
    """Return the row of the free-form node that holds a key (`env.NCCL_DEBUG` is one of `env`'s)."""
    rows: dict[str, KeyRow] = job_rows()
    parts = asked.split(".")
    above = (".".join(parts[:length]) for length in range(len(parts) - 1, 0, -1))
    free = next((rows[name] for name in above if name in rows and rows[name].type.startswith("keys with")), None)
    return (
        None
        if free is None
        else dataclasses.replace(free, key=asked, default="absent", doc=f"A key of {free.key}: {free.doc}")
    )


def _current(composed: Composed) -> dict[str, Current]:
    values: dict[str, Any] = flatten(composed.tree)
    sources = {leaf: getattr(source, "text", source) for leaf, source in composed.provenance.items()}
    return {leaf: Current(value=plain(value), source=str(sources.get(leaf))) for leaf, value in values.items()}


def _unknown(asked: str, nodes: list[str], groups: list[str]) -> Problem:
    hint = key_hint(asked, [*job_rows()], [*nodes, *groups]) or "task=help without task.key lists the nodes"
    return Problem(key="task.key", what=f"there is no key, node or group {asked!r}", hint=hint)
