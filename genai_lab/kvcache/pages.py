"""Memory pages by hand, Linux only: a file in memory, address ranges, and mapping parts of the file into them.

Thin over mmap(2) and memfd_create(2) through ctypes, since Python's `mmap` cannot map at a given address. Receives
sizes and offsets in bytes, multiples of the page size; knows no tokens and no layout. An address range lives as long as
the last array that looks at it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from genai_lab.errors import CapacityError

MAP_FIXED = 0x10
MAP_NORESERVE = 0x4000
READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE if sys.platform != "win32" else 0
FAILED = ctypes.c_void_p(-1).value


def page_size() -> int:
    """Bytes of the smallest piece that can be mapped."""
    return mmap.PAGESIZE


def unavailable_reason() -> str | None:
    """Why pages cannot be mapped here, in words; None when they can."""
    if not sys.platform.startswith("linux"):
        return f"mapping pages of a memory file needs Linux, this is {sys.platform}"
    try:
        os.close(os.memfd_create("genai_lab-probe"))
    except (AttributeError, OSError) as error:
        return f"the system gives no memory file (memfd_create): {error}"
    return None


def mapping_limit() -> int:
    """How many separate mappings a process may have."""
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return 65_530  # the kernel's default


def mappings_now() -> int:
    """How many this process has."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 1_000  # a Python process with numpy and onnxruntime has about this many


class AddressRange:
    """Zero pages at addresses of our own, into which parts of a memory file can be mapped.

    Private memory that costs nothing until it is written. Arrays from `array` keep it alive.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.address = _map(None, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
        weakref.finalize(self, _unmap, self.address, nbytes).atexit = False  # at exit others may still read it

    def map_file(self, offset: int, nbytes: int, file: int, file_offset: int) -> None:
        """The bytes [offset, offset + nbytes) are those of the file from `file_offset` on, for reading and writing."""
        _map(self.address + offset, nbytes, mmap.MAP_SHARED | MAP_FIXED, file, file_offset)

    def map_pieces(self, offsets: Sequence[int], nbytes: int, file: int, file_offsets: Sequence[int]) -> None:
        """`map_file` for many pieces of one size: a token's block has one for each layer, for keys and values, and for
        each head, so the loop is kept short."""
        assert LIBC is not None
        mmap_, base, flags = LIBC.mmap, self.address, mmap.MAP_SHARED | MAP_FIXED
        for offset, file_offset in zip(offsets, file_offsets, strict=True):
            if mmap_(base + offset, nbytes, READ_WRITE, flags, file, file_offset) != base + offset:
                raise _refusal(nbytes)

    def blank(self, offset: int, nbytes: int) -> None:
        """The bytes [offset, offset + nbytes) are private zeros again."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED
        _map(self.address + offset, nbytes, flags, -1, 0)

    def array(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """The range as an array; it holds the range."""
        return np.asarray(_Exporter(self, shape, np.dtype(dtype).str))


class _Exporter:
    """What numpy asks for an array over foreign memory."""

    def __init__(self, owner: AddressRange, shape: tuple[int, ...], typestr: str) -> None:
        self.owner = owner
        self.__array_interface__ = {"shape": shape, "typestr": typestr, "data": (owner.address, False), "version": 3}


def memory_file(nbytes: int) -> int:
    """Descriptor of a file that lives in memory; its pages are taken as they are written."""
    file = os.memfd_create("genai_lab-kv")
    os.ftruncate(file, nbytes)
    return file


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    size, place, number = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
    libc.mmap.restype, libc.mmap.argtypes = place, (place, size, number, number, number, ctypes.c_int64)
    libc.munmap.restype, libc.munmap.argtypes = number, (place, size)
    return libc


LIBC = _libc() if sys.platform.startswith("linux") else None


def _map(address: int | None, nbytes: int, flags: int, file: int, file_offset: int) -> int:
    assert LIBC is not None
    found: int | None = LIBC.mmap(address, nbytes, READ_WRITE, flags, file, file_offset)
    if found is None or found == FAILED:
        raise _refusal(nbytes)
    return found


def _refusal(nbytes: int) -> CapacityError:
    code = ctypes.get_errno()
    return CapacityError(
        f"the system refused to map {nbytes:,} bytes ({errno.errorcode.get(code, code)}: {os.strerror(code)}); "
        f"use fewer rows or a smaller capacity, or kv_backend='slots'"
    )


def _unmap(address: int, nbytes: int) -> None:
    assert LIBC is not None
    LIBC.munmap(address, nbytes)
