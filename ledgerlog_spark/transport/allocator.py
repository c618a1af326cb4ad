"""Keeps memory that was freed, for the next request or answer of its size.

Bodies of up to megabytes, and batches of as many small entries, are allocated and freed. The C
library returns such memory to the kernel, which maps and zeroes every page at the next use.
Measured in a bookie at 1 MiB an entry: batch reads from the page cache took 1,467 us of CPU an
entry and take 633 us with the memory kept; adds took 801 us of user time and take 343 us. A client
that reads entries of 1 MiB had 13 to 65 page faults an entry, and 0 to 7 if the memory is kept.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from typing import Final

MAPPED_BYTES_MIN: Final = 32 << 20
KEPT_BYTES_MAX: Final = 64 << 20

# Numbers of glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

_CHOSEN_BY_USER: Final = (
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "GLIBC_TUNABLES",
)
"""An operator who sets one of these in the environment has decided already."""


def keep_freed_memory(*, arenas_max: int | None = None) -> bool:
    """Set this in the C library, for the whole process; returns False if it changes nothing.

    `arenas_max` bounds the heaps that threads share.
    """
    if any(name in os.environ for name in _CHOSEN_BY_USER):
        return False
    library = ctypes.CDLL(ctypes.util.find_library("c"))
    mallopt = getattr(library, "mallopt", None)
    if mallopt is None:  # not glibc
        return False
    options = [(_MMAP_THRESHOLD, MAPPED_BYTES_MIN), (_TRIM_THRESHOLD, KEPT_BYTES_MAX)]
    if arenas_max is not None:
        options.append((_ARENA_MAX, arenas_max))
    answers = [mallopt(option, value) for option, value in options]
    return all(answers)
