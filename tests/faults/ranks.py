"""The processes that `torchrun --nproc-per-node N` would start, without torchrun's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

MODULE = ("-m", "dsvnp")


def start(words: list[str], program: tuple[str, ...] = MODULE, **ranks: str) -> subprocess.Popen:
    """Start a command of dsvnp in a process of its own."""
    path = os.pathsep.join(filter(None, sys.path))
    environment = (
        os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""} | ranks
    )
    words = [sys.executable, *program, *words]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def two(*words: str, program: tuple[str, ...] = MODULE) -> list[subprocess.Popen]:
    """Start two processes of one run."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [start(list(words), program, **meeting, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(2)]
