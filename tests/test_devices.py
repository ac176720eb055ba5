"""Devices that a user may name, and those that are not there."""

import os
import subprocess
import sys

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from dsvnp.devices import FEW_TOKENS, known_device, one_thread, pick_device, threads_for


def test_a_gpu_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert [known_device(name) for name in ("auto", "cpu", "cuda", "cuda:1")] == [
        "auto",
        "cpu",
        "cuda",
        "cuda:1",
    ]
    with pytest.raises(ValueError, match="there is no device cuda:2; the last is cuda:1"):
        known_device("cuda:2")


def test_auto_is_a_gpu_where_there_is_one(monkeypatch):
    for there, expected in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr("torch.cuda.is_available", lambda there=there: there)
        assert str(pick_device("auto")) == expected
    with pytest.raises(ValueError, match="no CUDA device can be used here; choose the device cpu"):
        pick_device("cuda")
    with pytest.raises(ValueError, match="unknown device 'gpu'; choose auto, cpu, cuda"):
        pick_device("gpu")


def test_one_thread_is_for_as_long_as_it_is_asked_for():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
        with pytest.raises(KeyError), one_thread():
            raise KeyError
        assert torch.get_num_threads() == 2
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_num_threads() == 1  # the second is still inside
        second.__exit__(None, None, None)  # it began with one, and still knows of two
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_one_thread_holds_for_other_linear_algebra_too():
    def number() -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        before = number()
        with one_thread():
            with one_thread():
                assert number() == {1}
            assert number() == {1}
        assert number() == before


def test_more_tokens_have_more_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for tokens, threads in ((FEW_TOKENS, 1), (FEW_TOKENS + 1, 2)):
            with threads_for(tokens):
                assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


FORKED = """
import os, torch, dsvnp.devices
torch.set_num_threads(2)
torch.rand(4_000_000).exp()
child = os.fork()
if not child:
    torch.rand(4_000_000).exp()
    os._exit(7)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_process_that_was_forked_computes():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "2"}
    assert subprocess.run([sys.executable, "-c", FORKED], env=environment, timeout=120).returncode == 7
