"""Draw the ambiguity problems on one page: what their points look like, and how outputs depend on each other.

python -m studies.ambiguity_gallery gallery.png
"""

import argparse
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from dsvnp.paper.ambiguity.arms import elbow_solutions
from dsvnp.paper.ambiguity.problem import Points, Problem
from dsvnp.paper.ambiguity.problems import CONTROLS, PROBLEMS
from dsvnp.plotting.style import house_style, save

COLOURS = ("tab:blue", "tab:orange", "tab:green")


def draw_over_x(axes: Axes, points: Points, output: int = 0) -> None:
    """One output of the first task over its only input, and its curves where it has some."""
    order = points.x[0, :, 0].argsort()
    x = points.x[0, order, 0]
    for name in ("u", "v", "f"):
        if name in points.parameters:
            axes.plot(x, points.parameters[name][0, order, output], lw=1, color="0.6")
    axes.plot(x, points.y[0, order, output], ".", ms=3)
    axes.set(xlabel="x", ylabel=f"output {output + 1}")


def draw_plane(axes: Axes, residual: Tensor, labels: tuple[str, str]) -> None:
    """Two outputs of three tasks in their plane; residual is [3, T, 2]."""
    for task, colour in zip(residual, COLOURS, strict=True):
        axes.plot(task[:, 0], task[:, 1], ".", ms=3, color=colour)
    axes.set(xlabel=labels[0], ylabel=labels[1])


def draw_elbows(axes: Axes, points: Points, count: int = 4) -> None:
    """Both solutions of a few places of the first task's arm."""
    lengths, places = points.parameters["lengths"][0], points.x[0, :count]
    for angles, style in zip(elbow_solutions(places, lengths), ("-", "--"), strict=True):
        elbow = lengths[:, :1] * torch.stack([angles[:, 0].cos(), angles[:, 0].sin()], dim=-1)
        for row, colour in zip(range(count), (*COLOURS, "tab:red"), strict=True):
            path = torch.stack([torch.zeros(2), elbow[row], places[row]])
            axes.plot(path[:, 0], path[:, 1], style, lw=1.2, color=colour, marker="o", ms=3)
    axes.set_aspect("equal")


def draw_poses(axes: Axes, problem: Problem, generator: torch.Generator, count: int = 40) -> None:
    """Poses of one arm that share the shoulder's angle, nearly: the wrist and the hand are free."""
    x, y, _ = problem.draw(1, 2000, generator)
    near = (x[0, :, 0] - 0.7).abs().argsort()[:count]
    for row in y[0, near].unflatten(-1, (4, 2)):
        path = torch.cat([torch.zeros(1, 2), row])
        axes.plot(path[:, 0], path[:, 1], lw=0.5, color="0.75")
        axes.plot(row[:, 0], row[:, 1], ".", ms=3, color="tab:blue")
    axes.set_aspect("equal")


def gallery(path: Path, seed: int = 0) -> Path:
    """Draw the page and save it."""
    generator = torch.Generator().manual_seed(seed)
    points = {name: problem.draw(3, 400, generator) for name, problem in PROBLEMS.items()}
    with house_style():
        figure = Figure(figsize=(13, 9.5), layout="constrained")
        grid = figure.subplots(3, 4).flatten()
        draw_over_x(grid[0], points["branches"])
        draw_over_x(grid[1], points["branches"], 1)
        shared = points["shared-noise-2"]
        draw_over_x(grid[2], shared)
        draw_plane(grid[3], shared.y - shared.parameters["f"], ("y₁ − f₁", "y₂ − f₂"))
        draw_elbows(grid[4], points["inverse-kinematics"])
        draw_plane(grid[5], points["inverse-kinematics"].y, ("shoulder", "elbow"))
        draw_poses(grid[6], PROBLEMS["hidden-pose"], generator)
        pole = points["kicked-cartpole"]
        mean, _ = PROBLEMS["kicked-cartpole"].moments(pole.x, pole.parameters)
        draw_plane(grid[7], (pole.y - mean)[..., 2:], ("ẋ − step", "θ̇ − step"))
        for axes, name in zip(grid[8:], CONTROLS, strict=False):
            draw_over_x(axes, points[name])
        eight = points["shared-noise-8"]
        draw_plane(grid[11], (eight.y - eight.parameters["f"])[..., [0, 7]], ("y₁ − f₁", "y₈ − f₈"))
        pairs = ("branches", "shared noise", "inverse kinematics")
        titles = [title for title in pairs for _ in range(2)]
        titles += ["hidden pose", "kicked Cart-Pole", *CONTROLS, "shared noise, 8 outputs"]
        for axes, title in zip(grid, titles, strict=True):
            axes.set_title(title)
        return save(figure, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path, help="PNG file to write")
    print(gallery(parser.parse_args().path))
