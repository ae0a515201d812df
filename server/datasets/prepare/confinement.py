"""Takes away from this process what it does not need: it reads files that strangers made."""

import ctypes
import os
import resource
import signal
import threading

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_OPEN_FILES = 64


def confine(memory_bytes: int, cpu_seconds: int, file_bytes: int, parent_pid: int) -> bool:
    """Limits memory, CPU time and the size of a file; dies with its parent; no network.

    Returns whether the network could be taken away: not every container lets a process do so.
    Call it first, before there are threads.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent_pid and os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)  # the parent died before it could be watched
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for kind, limit in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        _lower(kind, limit)
    if threading.active_count() != 1:
        return False
    return any(
        libc.unshare(flags) == 0 for flags in (_CLONE_NEWNET, _CLONE_NEWUSER | _CLONE_NEWNET)
    )


def _lower(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    # CPU time kills by the soft limit's signal, which the daemon can tell from other deaths.
    hard = limit + 1 if kind == resource.RLIMIT_CPU and hard == resource.RLIM_INFINITY else limit
    resource.setrlimit(kind, (limit, hard))
