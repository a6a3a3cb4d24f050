"""Memory that is freed is kept: the second use of it costs no page fault."""

import os
import resource
import subprocess
import sys

import pytest

PROBE = """
import resource, sys
import numpy as np
from fedrage_flwr.memory import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def use():
    del_me = [np.ones(2_000_000, np.uint8) for _ in range(20)]
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(word, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", PROBE, word]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, env=clean | environment).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc is what it sets")
def test_forty_megabytes_taken_again():
    """20 arrays of 2 MB are 9,766 pages of 4 KiB (fewer faults where the kernel gives larger ones)."""
    pages = 40_000_000 // resource.getpagesize()
    assert faults("keep") < pages / 20
    assert faults("leave") > faults("keep")


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc is what it sets")
def test_the_environment_has_the_last_word():
    """Told to give back at once, it does, whether asked to keep or not."""
    told = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    assert faults("keep", **told) > 5 * faults("keep")
