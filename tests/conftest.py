"""What all tests share: one thread each, because two of them run at the same time."""

import torch

torch.set_num_threads(1)
