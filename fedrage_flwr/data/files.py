"""Data sets kept as files in a folder laid out by torchvision, downloaded at most once.

Torchvision is imported only to download. Its readers would cost every process three seconds of imports; they check no
idx file once it is unpacked, and hash CIFAR-10 twice. The two formats take a few lines to read (``mnist.py``,
``cifar.py``).
"""

import io
import logging
import socket
import tarfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import ClassVar

from fedrage_flwr.data.dataset import ClassesSettings, Dataset
from fedrage_flwr.errors import UserError

log = logging.getLogger(__name__)

SOCKET_TIMEOUT_S = 15.0  # without an answer for so long a server counts as unreachable
LOCK_TIMEOUT_S = 3600.0  # how long to wait for another process that is downloading
FAILURES = (OSError, RuntimeError, EOFError, HTTPException, tarfile.TarError, zlib.error)  # URLError is an OSError


@dataclass(frozen=True)
class FilesSettings(ClassesSettings):
    """``root``: the folder torchvision calls ``root``; ``~`` is allowed."""

    root: str


class FilesDataset(ABC):
    """A data set that lives in ``settings.root``; what is not there whole is downloaded under a lock."""

    word: ClassVar[str]  # what is typed after dataset=

    def __init__(self, settings: FilesSettings) -> None:
        self.settings = settings
        self.root = Path(settings.root).expanduser().absolute()

    @abstractmethod
    def flaw(self) -> str | None:
        """Return what is missing or damaged, as a short phrase; ``None`` when every file is whole. Writes nothing."""

    @abstractmethod
    def fetch(self) -> None:
        """Download with torchvision into ``root``, replacing what is damaged. Called under the lock."""

    @abstractmethod
    def read(self) -> Dataset:
        """Read the files, known to be whole."""

    def load(self) -> Dataset:
        """Return the data set, downloading it first where needed; ``UserError`` as in :meth:`prepare`."""
        self.prepare()
        return self.read()

    def prepare(self) -> None:
        """Make sure the files are there and whole.

        A complete folder is only read, so it may be read-only. Of several processes one downloads, the others wait.

        Raises:
            UserError: incomplete, and it cannot be downloaded or written.
        """
        flaw = self.flaw()
        if flaw is None:
            return
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._fetch_under_lock()
        except FAILURES as error:
            raise UserError(self._complaint(flaw, error)) from error
        if (left := self.flaw()) is not None:
            raise UserError(self._complaint(flaw, RuntimeError(f"afterwards {left}")))

    def _fetch_under_lock(self) -> None:
        from filelock import FileLock

        # the lock file stays: removing it would let a third process in while a second one waits for it
        with FileLock(self.root / f".{self.word}.lock", timeout=LOCK_TIMEOUT_S):
            flaw = self.flaw()
            if flaw is None:  # another process was faster
                return
            log.info("dataset=%s: downloading into %s (%s)", self.word, self.root, flaw)
            with _quiet_download():
                self.fetch()

    def _complaint(self, flaw: str, error: BaseException) -> str:
        # torchvision's own text lists every mirror over several lines: its last line says why
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
        return (
            f"dataset={self.word}: {flaw} in {self.root}, and downloading failed ({reason[:160]}); "
            f"name the folder that holds it with dataset.root=... or the environment variable FEDRAGE_DATA, "
            f"or run once on a machine with network"
        )


@contextmanager
def _quiet_download() -> Iterator[None]:
    """Bound the wait for a silent server, and keep torchvision's progress bars off the terminal."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(SOCKET_TIMEOUT_S)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        socket.setdefaulttimeout(before)
