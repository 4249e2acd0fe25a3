"""One process at a time, and a dead one keeps nobody out."""

import os
import subprocess
import sys
import time

from joem.locking import FileLock

HOLD = """
import sys, time
from pathlib import Path
from joem.locking import FileLock
assert FileLock(Path(sys.argv[1])).take()
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_is_held_by_one_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "new" / "lock"
    one, other = FileLock(path), FileLock(path)
    assert one.take()
    assert not other.take()
    assert other.holder().startswith(f"process {os.getpid()} on ")
    other.release()  # it holds nothing
    assert not other.take()
    one.release()
    assert not path.exists()
    assert other.take()
    other.release()


def test_a_lock_whose_file_was_removed_is_free_and_its_old_holder_removes_no_other(tmp_path):
    one, other = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert one.take()
    (tmp_path / "lock").unlink()
    assert other.take()
    one.release()
    assert not FileLock(tmp_path / "lock").take()
    other.release()


def test_a_killed_process_keeps_nobody_out(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "held\n"
    lock = FileLock(tmp_path / "lock")
    assert not lock.take()
    assert f"process {holder.pid} on " in lock.holder()
    holder.kill()
    holder.wait()
    assert lock.take()
    lock.release()


def test_a_forked_process_does_not_hold_the_lock_of_its_parent(tmp_path):
    """The workers of a loader live on for seconds after the training that started them was killed."""
    lock = FileLock(tmp_path / "lock")
    assert lock.take()
    begun, begin = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(begin, b".")
        time.sleep(60)
        os._exit(0)
    try:
        os.read(begun, 1)
        lock._handle.close()  # as when this process ends
        assert FileLock(tmp_path / "lock").take()
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
