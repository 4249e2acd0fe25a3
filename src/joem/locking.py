"""A lock between processes: a file that one of them holds until it ends, however it ends."""

import os
import socket
from pathlib import Path
from typing import IO

_held: set[IO[str]] = set()


class FileLock:
    """A lock that a file stands for; on any machine that shares the folder.

    Args:
        path: the file, which is there as long as the lock is held.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: IO[str] | None = None

    def take(self) -> bool:
        """Take the lock; False where another process, or another lock of this one, has it."""
        import fcntl

        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            handle = self.path.open("a+")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.close()
                return False
            if self._is_current(handle):
                break
            handle.close()  # whoever held it has removed the file in between
        self._handle = handle
        _held.add(handle)
        handle.truncate(0)
        handle.write(f"process {os.getpid()} on {socket.gethostname()}")
        handle.flush()
        return True

    def release(self) -> None:
        """Let go of the lock and remove its file, if it is held."""
        if self._handle is None:
            return
        if self._is_current(self._handle):
            self.path.unlink(missing_ok=True)
        _held.discard(self._handle)
        self._handle.close()
        self._handle = None

    def holder(self) -> str:
        """Who holds the lock, for messages."""
        try:
            return self.path.read_text(errors="replace") or "another process"
        except OSError:
            return "another process"

    def _is_current(self, handle: IO[str]) -> bool:
        """Whether the file is still the one that was opened."""
        try:
            return os.path.samestat(os.fstat(handle.fileno()), self.path.stat())
        except FileNotFoundError:
            return False


def _leave_to_parent() -> None:
    """A loader's process would hold the locks of the one that started it for some time after that was killed."""
    for handle in _held:
        handle.close()
    _held.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_leave_to_parent)
