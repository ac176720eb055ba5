"""Prediction for measures: the draws are the same in each call, and alike for every model."""

import torch

from dsvnp.models import NeuralProcess
from dsvnp.predictive import Predictive
from dsvnp.task import Task

DrawCounts = tuple[int, int]  # of z_G, and of each z_* for each of them


def seeded_predict(net: NeuralProcess, task: Task, draws: DrawCounts, chunk: int = 10_000) -> Predictive:
    """Predict with draws that are the same for each call.

    `chunk` targets are predicted at once, which bounds the memory and decides which noise a target's z_* gets.
    """
    generator = torch.Generator(task.x_target.device).manual_seed(0)
    return net.predict(task, *draws, generator=generator, validate=False, chunk=chunk)


def chunk_of(draws: DrawCounts, most: int) -> int:
    """Targets to predict at once, where all their draws together may be `most`."""
    return max(1, most // (draws[0] * draws[1]))
