"""What the pictures show: a model's samples at inputs of one task, and samples of the truth there."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dsvnp.models import NeuralProcess
from dsvnp.paper.ambiguity.problem import Problem
from dsvnp.sources.base import Tensors
from dsvnp.task import Task

SEED = 16  # a task whose branches lie apart, and an arm of links alike
NUM_CONTEXT, NUM_TARGETS, NUM_SAMPLES = 30, 100, 120
OVER_X = 4  # samples at each target of a picture over x
PLANE = ("branches", "shared-noise-2", "inverse-kinematics")  # in the plane of two outputs
ARMS = ("inverse-kinematics", "hidden-pose")
SHOWN = tuple(dict.fromkeys((*PLANE, *ARMS)))


class ShownTask(NamedTuple):
    """One task of a problem: its context, targets in the order of their first input, and its parameters there."""

    task: Task  # the context, and the targets
    parameters: Tensors  # at the targets
    middle: int  # the target whose outputs are shown in a plane, or as arms

    @classmethod
    def draw(cls, problem: Problem) -> ShownTask:
        """The same task on every device."""
        generator = torch.Generator("cpu").manual_seed(SEED)
        x, y, parameters = problem.unseen().draw(1, NUM_CONTEXT + NUM_TARGETS, generator)
        order = NUM_CONTEXT + x[0, NUM_CONTEXT:, 0].argsort()
        task = Task.from_sets(x[:, :NUM_CONTEXT].float(), y[:, :NUM_CONTEXT].float(), x[:, order].float())
        at = {
            name: value if value.shape[1] == 1 else value[:, order]
            for name, value in parameters.items()  # lengths hold for all points
        }
        return cls(task, at, NUM_TARGETS // 2)

    def truth(self, problem: Problem, name: str) -> dict[str, Any]:
        """Samples of the truth, and what else a picture needs of the task."""
        generator = torch.Generator("cpu").manual_seed(SEED + 1)
        here = slice(self.middle, self.middle + 1)
        x = self.task.x_target[:, here].double().expand(1, NUM_SAMPLES, -1)
        at = {k: v if v.shape[1] == 1 else v[:, here] for k, v in self.parameters.items()}
        at = {k: v.expand(1, NUM_SAMPLES, -1) for k, v in at.items()}
        shown = {"at": _rounded(problem.sample(x, at, generator)[0])}
        if name == "branches":
            x = self.task.x_target.double()
            drawn = [problem.sample(x, self.parameters, generator)[0, :, 0] for _ in range(OVER_X)]
            shown["over_x"] = _rounded(torch.stack(drawn))
            shown["curves"] = _rounded(
                torch.stack([self.parameters["u"][0, :, 0], self.parameters["v"][0, :, 0]])
            )
            shown["x"] = _rounded(self.task.x_target[0, :, 0])
            shown["context"] = _rounded(
                torch.stack([self.task.x_context[0, :, 0], self.task.y_context[0, :, 0]])
            )
        if name in ARMS:
            shown["lengths"] = _rounded(self.parameters["lengths"][0, 0])
            shown["place"] = _rounded(self.task.x_target[0, self.middle])
        return shown


def samples_of(net: NeuralProcess, problem: Problem, name: str, context: bool = True) -> dict[str, Any]:
    """Samples of a model at the shown target and, for the branches, at all of them."""
    device = next(net.parameters()).device
    task = ShownTask.draw(problem).task.to(device)
    if not context:
        task = Task.from_sets(task.x_context[:, :0], task.y_context[:, :0], task.x_target)
    generator = torch.Generator(device).manual_seed(SEED)
    drawn = net.predict(task, NUM_SAMPLES, generator=generator).sample(NUM_SAMPLES, generator)  # [N, 1, T, D]
    shown = {"at": _rounded(drawn[:, 0, NUM_TARGETS // 2])}
    if name == "branches":
        shown["over_x"] = _rounded(drawn[:OVER_X, 0, :, 0])
    return shown


def _rounded(values: Tensor) -> Any:
    """Lists with as many digits as a picture shows."""
    return [round(v, 3) for v in values.tolist()] if values.ndim == 1 else [_rounded(row) for row in values]
