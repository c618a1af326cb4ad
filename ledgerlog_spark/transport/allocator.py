"""Keeps freed memory for the next request or answer.

The process allocates and frees memory for requests and answers of up to several megabytes. Without
this module, the C library returns this memory to the kernel, and the kernel maps and zeroes every
page again at the next allocation. In a bookie with entries of 1 MiB, a batch read from the page
cache takes 633 us of CPU time for each entry with this module, and took 1,467 us without it. An add
takes 343 us of user time instead of 801 us. A client that reads such entries has 0 to 7 page faults
for each entry instead of 13 to 65.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

MAPPED_BYTES_MIN: Final = 32 << 20
KEPT_BYTES_MAX: Final = 64 << 20

# Numbers of the options in glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

_CHOSEN_BY_USER: Final = (
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "GLIBC_TUNABLES",
)
"""Environment variables that configure the allocator. If one of them is set, this module changes
nothing."""


def keep_freed_memory(*, arenas_max: int | None = None) -> bool:
    """Make the C library keep the freed memory of this process; return whether this succeeded.

    `arenas_max` is the maximum number of heaps that the threads of the process share.
    """
    if any(name in os.environ for name in _CHOSEN_BY_USER):
        return False
    library = ctypes.CDLL(None)  # `find_library` would start processes
    mallopt = getattr(library, "mallopt", None)
    if mallopt is None:  # not glibc
        return False
    options = [(_MMAP_THRESHOLD, MAPPED_BYTES_MIN), (_TRIM_THRESHOLD, KEPT_BYTES_MAX)]
    if arenas_max is not None:
        options.append((_ARENA_MAX, arenas_max))
    answers = [mallopt(option, value) for option, value in options]
    return all(answers)
