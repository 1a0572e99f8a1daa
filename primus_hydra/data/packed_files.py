"""Files as bytes, whether plain, gzipped or in Zstandard's format (.gz, .zst); memory stays small for any size.

A packed file that breaks off raises EOFError, a damaged one an error of its own kind: `DAMAGED` names them all. Needs
`zstandard` for .zst, whose absence the caller has checked.
"""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

_BLOCK: Final = 1 << 16
_SKIP: Final = 1 << 20


class DamagedFileError(ValueError):
    """A .zst file that cannot be unpacked."""


DAMAGED: Final = (gzip.BadGzipFile, EOFError, zlib.error, DamagedFileError)


def is_zst(path: Path) -> bool:
    """Whether a file is packed by Zstandard, as its name says."""
    return path.name.lower().endswith(".zst")


def packing_of(path: Path) -> str | None:
    """Return the program that packs and tests such files, None for a plain one."""
    return "zstd" if is_zst(path) else "gzip" if path.name.lower().endswith(".gz") else None


def open_bytes(path: Path) -> BinaryIO:
    """Open the unpacked bytes of a file."""
    packing = packing_of(path)
    if packing == "zstd":
        return cast(BinaryIO, io.BufferedReader(_Frames(path), _SKIP))
    return cast(BinaryIO, gzip.GzipFile(path)) if packing == "gzip" else path.open("rb")


def skip(stream: BinaryIO, count: int) -> None:
    """Go forward from the beginning of a stream; reads what a packed file has before that place."""
    if isinstance(stream, io.BufferedReader) and not isinstance(stream.raw, _Frames):
        stream.seek(count)
        return
    while count > 0 and (block := stream.read(min(count, _SKIP))):
        count -= len(block)


class _Unpacker(Protocol):
    """One frame of a .zst file on its way to bytes, as `zstandard` has it."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes) -> bytes: ...


class _Frames(io.RawIOBase):
    """The frames of a .zst file, one after the other.

    Not the library's own reader, which takes a file that breaks off for a whole one.
    """

    def __init__(self, path: Path) -> None:
        import zstandard

        self._unpacking = zstandard.ZstdDecompressor()
        self._error: type[Exception] = zstandard.ZstdError
        self._raw = path.open("rb")
        self._frame: _Unpacker | None = None
        self._ready = b""

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill a part of the buffer; 0 at the end."""
        while not self._ready:
            if not self._unpack():
                return 0
        given, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(given)] = given
        return len(given)

    def close(self) -> None:
        """Close the file."""
        self._raw.close()
        super().close()

    def _unpack(self) -> bool:
        """Unpack a little more; return whether there was more."""
        block = self._frame.unused_data if self._frame is not None and self._frame.eof else b""
        block = block or self._raw.read(_BLOCK)
        if self._frame is not None and self._frame.eof:
            self._frame = None
        if not block:
            if self._frame is not None:
                raise EOFError("it breaks off before its end")
            return False
        if self._frame is None:
            self._frame = self._unpacking.decompressobj()
        try:
            self._ready = self._frame.decompress(block)
        except self._error as error:
            raise DamagedFileError(str(error)) from error
        return True
