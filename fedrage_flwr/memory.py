"""How the C library keeps memory that was freed."""

import ctypes
import os

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # names of mallopt(3)
LARGEST_MAPPED, KEPT = 32 << 20, 256 << 20


def keep_freed_memory() -> None:
    """Have glibc keep up to 256 MiB that this process frees, rather than give it back and ask for it again.

    A round takes and frees a few arrays of a model's size, and each new page costs a page fault: a tenth of a round of the MLP
    (docs/performance.md). Does nothing without glibc, or where the environment already says how (``MALLOC_*``).
    """
    if any(name.startswith("MALLOC_") for name in os.environ) or os.name != "posix":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGEST_MAPPED)
        mallopt(TRIM_THRESHOLD, KEPT)
