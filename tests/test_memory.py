"""A prediction needs little more memory than the arrays it returns, however many targets there are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MEASURE = """
import sys, torch
from dsvnp import Architecture, Task, Transformer, make_model

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024

torch.set_num_threads(1)
sizes = Transformer(width=8, num_layers=1, num_heads=2, feedforward=8, embedder=())
model = make_model(sys.argv[1], Architecture(1, 1, encoder=(8,), dim_lat=8, decoder=(8,), transformer=sizes))
many = torch.zeros(1, 400_000, 1)
context = torch.zeros(1, 10, 1)
model.predict(Task.from_sets(context, context, many[:, :10_000]), 8)
before = peak()
prediction = model.predict(Task.from_sets(context, context, many), 8)
returned = sum(v.numel() * v.element_size() for v in vars(prediction).values()) / 2**20
assert prediction.shape == (8, 1, 1, 400_000, 1)
print(peak() - before, returned)
"""


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="reads the peak of resident memory from /proc"
)
@pytest.mark.parametrize("name", ["attnnp", "dsvnp", "dsvtnp"])
def test_many_targets_need_little_more_than_ten_thousand_beyond_what_is_returned(name):
    exact = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}  # glibc gives back what is freed, at once
    command = [sys.executable, "-c", MEASURE, name]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=exact)
    grown, returned = map(float, run.stdout.split())  # in MiB
    assert returned == pytest.approx(24.4, abs=1)  # 8 draws of a mean and a scale
    assert grown - returned < 16  # decoded at once a hidden layer alone would take 98, a second copy 24
