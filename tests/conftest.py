"""What all tests share: one thread each, so that two of them can run beside each other."""

import torch

torch.set_num_threads(1)
