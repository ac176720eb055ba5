"""What all tests share: one thread each, because two of them run at the same time and idle threads spin."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy is there

import torch

torch.set_num_threads(1)
