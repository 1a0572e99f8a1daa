"""The standard-library modules that `data=python_stdlib` reads: a corpus of real text that lies on every machine.

The list is fixed: the modules that CPython 3.11, 3.12 and 3.13 all have and that Debian and Ubuntu keep in their base
packages. Left out: what distributions strip or move (tests, idlelib, tkinter, turtle, ensurepip, venv), what later
versions removed (distutils, asyncore, cgi, lib2to3, ...), what is generated (encodings, pydoc_data, _sysconfigdata).
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Final

STDLIB_MODULES: Final[tuple[str, ...]] = tuple(
    """
    __future__ _collections_abc _compat_pickle _compression _markupbase _py_abc _pydecimal _pyio _sitebuiltins
    _strptime _threading_local _weakrefset abc argparse ast asyncio base64 bdb bisect bz2 cProfile calendar cmd code
    codecs codeop collections colorsys compileall concurrent configparser contextlib contextvars copy copyreg csv
    ctypes curses dataclasses datetime dbm decimal difflib dis doctest email enum filecmp fileinput fnmatch fractions
    ftplib functools genericpath getopt getpass gettext glob graphlib gzip hashlib heapq hmac html http imaplib
    importlib inspect io ipaddress json keyword linecache locale logging lzma mailbox mimetypes modulefinder
    multiprocessing netrc ntpath numbers opcode operator optparse os pathlib pdb pickle pickletools pkgutil platform
    plistlib poplib posixpath pprint profile pstats pty py_compile pyclbr pydoc queue quopri random re reprlib
    rlcompleter runpy sched secrets selectors shelve shlex shutil signal site smtplib socket socketserver sqlite3 ssl
    stat statistics string stringprep struct subprocess symtable sysconfig tabnanny tarfile tempfile textwrap
    threading timeit token tokenize tomllib trace traceback tracemalloc tty types typing unittest urllib uuid warnings
    wave weakref webbrowser wsgiref xml xmlrpc zipapp zipfile zipimport zoneinfo
    """.split()  # noqa: SIM905 - a list literal would take a line per name
)
_TEST_FOLDERS: Final = frozenset({"test", "tests"})


def stdlib_root() -> Path:
    """Return the folder of this interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def stdlib_files(root: Path) -> tuple[list[Path], list[str]]:
    """Return the source files of the list in sorted order, without empty ones, and the modules that `root` lacks."""
    files: list[Path] = []
    missing: list[str] = []
    for name in STDLIB_MODULES:
        found = _module_files(root, name)
        files.extend(found)
        if not found:
            missing.append(name)
    return sorted((file for file in files if file.stat().st_size), key=Path.as_posix), missing


def _module_files(root: Path, name: str) -> list[Path]:
    package = root / name
    if (package / "__init__.py").is_file():
        return [
            file for file in package.rglob("*.py") if not _TEST_FOLDERS.intersection(file.relative_to(package).parts)
        ]
    module = root / f"{name}.py"
    return [module] if module.is_file() else []
