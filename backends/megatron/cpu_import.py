"""Imports Megatron's modules so that they train on a processor, and leaves every other module alone.

A finder, first in `sys.meta_path`, loads the modules of `megatron`. After a module ran, its name `torch` is bound to
`cpu_torch.TORCH`. Method calls such as `tensor.cuda()` cannot be answered by a name: in the modules that have them, the
calls are rewritten to functions of `cpu_torch` before they are compiled. Files on disk are not touched.
Refuses to start once a module of Megatron was imported, because that one would keep torch's own names.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader

PACKAGE = "megatron"
_HELPER = "__primus_cpu_torch__"
# Method of a tensor -> function of cpu_torch.
_METHODS = {"cuda": "stay", "pin_memory": "unpinned", "type": "type_name"}
_NEEDS_REWRITING = re.compile(rb"\.cuda\(|\.pin_memory\(|\.type\(\)|^[ \t]+import torch\b", re.MULTILINE)


def install() -> None:
    """Load Megatron for the processor from now on; a second call changes nothing.

    Raises RuntimeError if modules of Megatron were imported before.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    early = sorted(name for name in sys.modules if name.startswith(f"{PACKAGE}."))
    if early:
        raise RuntimeError(f"{early[0]} was imported before it could be fitted to the processor")
    sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds Megatron's modules where the other finders find them, and gives them our loader."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{PACKAGE}."):
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Loads a module of Megatron as Python does, rewritten where it must be, and rebinds its names of torch."""

    def get_code(self, fullname: str) -> types.CodeType | None:
        source = self.get_data(self.path)
        if not _NEEDS_REWRITING.search(source):
            return super().get_code(fullname)
        tree = _Rewriter().visit(ast.parse(source, self.path))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)

    def exec_module(self, module: types.ModuleType) -> None:
        # Imported here, so that this module can be read without torch.
        helper = importlib.import_module("primus_hydra.backends.megatron.cpu_torch")
        module.__dict__[_HELPER] = helper
        super().exec_module(module)
        helper.rebind(module.__dict__)


class _Rewriter(ast.NodeTransformer):
    """Turns `x.cuda(...)`, `x.pin_memory(...)` and `x.type()` into calls of cpu_torch, and `import torch` likewise."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        method = node.func
        if not isinstance(method, ast.Attribute) or method.attr not in _METHODS:
            return node
        if method.attr == "type" and (node.args or node.keywords):
            return node
        function = ast.Attribute(value=_helper(), attr=_METHODS[method.attr], ctx=ast.Load())
        changed = ast.Call(func=function, args=[method.value, *node.args], keywords=node.keywords)
        return ast.copy_location(changed, node)

    def visit_Import(self, node: ast.Import) -> ast.AST | list[ast.AST]:
        if not any(alias.name.partition(".")[0] == "torch" and not alias.asname for alias in node.names):
            return node
        value = ast.Attribute(value=_helper(), attr="TORCH", ctx=ast.Load())
        binding = ast.Assign(targets=[ast.Name(id="torch", ctx=ast.Store())], value=value)
        return [node, ast.copy_location(binding, node)]


def _helper() -> ast.Name:
    return ast.Name(id=_HELPER, ctx=ast.Load())
