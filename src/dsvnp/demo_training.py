"""The demo with training: six neural processes on the paper's curves (Sec. 4.1) in a few minutes on two cores."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from dsvnp.metrics import point_nll, point_squared_error
from dsvnp.models import Architecture, NeuralProcess, Transformer, make_model
from dsvnp.objectives import Objective
from dsvnp.plotting.figures import FunctionPanel, functions_figure
from dsvnp.plotting.style import Look, look_of
from dsvnp.predictive import Predictive
from dsvnp.sources.curves import Curves, curve_tasks, draw_curves
from dsvnp.task import Task
from dsvnp.training import Adam, Fleet, Reporter, Schedule, Settings, train

INTERVAL = (-2.0, 2.0)


@dataclass(frozen=True)
class Demo:
    """Settings of the demo."""

    models: tuple[str, ...] = ("cnp", "np", "attnnp", "dsvnp", "tnp", "dsvtnp")  # which models
    num_steps: int = 5000  # training steps of each
    batch_size: int = 8  # tasks of a step
    num_points: int = 64  # points of a task
    learning_rate: float = 3e-3  # its peak; it falls to zero along a cosine
    width: int = 64  # of all layers
    seed: int = 0  # of weights, data and noise

    def architecture(self) -> Architecture:
        """A little wider than the paper's, which needs 800k steps to show what it can."""
        half = self.width // 2
        transformer = Transformer(half, num_layers=2, feedforward=self.width, embedder=(half,))
        layers = (self.width, self.width)
        return Architecture(1, 1, encoder=layers, dim_lat=self.width, decoder=layers, transformer=transformer)

    def settings(self) -> Settings:
        """Adam with a warm-up and a cosine; KL_G rises for half of the time, KL_L counts from the start.

        With the paper's β_local of 1000 DSVNP lags behind NP in a run as short as this.
        """
        return Settings(
            self.num_steps,
            self.learning_rate,
            optimizer=Adam(clip_norm=1.0),
            schedule=Schedule("cosine", warmup=min(100, self.num_steps // 10)),
            objective=Objective(
                beta_local=10.0, anneal="linear", anneal_steps=max(1, self.num_steps // 2), anneal_local=False
            ),
        )


def run_training(demo: Demo, out: Path, console: Console, device: str = "cpu") -> Path:
    """Train the models, print their likelihoods on unseen curves, and draw what they predict."""
    source = Curves(demo.batch_size, demo.num_points, min_context=3, max_context=demo.num_points // 2)
    trained: dict[str, NeuralProcess] = {}
    for name in demo.models:
        fleet = Fleet(
            partial(make_model, name, demo.architecture()), source, [demo.seed], demo.settings(), device
        )
        train(fleet, reporter=Reporter(f"{look_of(name).text:>6}", demo.num_steps, console=console))
        trained[name] = fleet.replica(0)
    console.print(_table(trained, demo.seed, device))
    path = out / "demo.png"
    functions_figure(_panels(trained, demo.seed, device), path)
    console.print(f"The figure is in [bold]{path}[/bold]: dashed is the truth, the band is ±3σ.")
    return path


def _table(models: dict[str, NeuralProcess], seed: int, device: str) -> Table:
    """Average NLL and squared error on 200 unseen curves with 3 to 50 context points."""
    generator = torch.Generator(device).manual_seed(seed + 1)
    tasks = curve_tasks(200, 100, (3, 50), generator, INTERVAL)
    table = Table(title="200 unseen curves, 3 to 50 context points of 100: lower is better")
    for column in ("model", "NLL, all points (J)", "NLL, outside the context (P)", "MSE (P)"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for name, model in models.items():
        nll_j, nll_p, mse = _scores(model, tasks)
        table.add_row(look_of(name).text, f"{nll_j:.3f}", f"{nll_p:.3f}", f"{mse:.4f}")
    return table


def _scores(model: NeuralProcess, tasks: Sequence[Task]) -> list[float]:
    """NLL over all points and outside the context, and the squared error outside it."""
    predictions = [(_predict(model, task), task) for task in tasks]
    scores: Any = ((point_nll, "J"), (point_nll, "P"), (point_squared_error, "P"))
    values = ([score(p, task, points) for p, task in predictions] for score, points in scores)
    return [float(torch.cat(each).mean()) for each in values]


def _predict(model: NeuralProcess, task: Task) -> Predictive:
    """Predict with the same draws each time: the demo then prints the same numbers each time."""
    return model.predict(task, generator=torch.Generator(task.x_target.device).manual_seed(0))


def _panels(
    models: dict[str, NeuralProcess], seed: int, device: str
) -> list[tuple[str, dict[Look, FunctionPanel]]]:
    """Two unseen functions, one seen at few points and one at more."""
    rows = []
    for num_context in (5, 20):
        generator = torch.Generator(device).manual_seed(seed + num_context)
        grid = torch.linspace(*INTERVAL, 200, device=device)
        places = INTERVAL[0] + (INTERVAL[1] - INTERVAL[0]) * torch.rand(
            num_context, generator=generator, device=device
        )
        x = torch.cat([grid, places])[None, :, None]
        y = draw_curves(x, generator)
        task = Task.from_sets(x[:, 200:], y[:, 200:], x[:, :200])
        shown = (grid, y[0, :200, 0], places, y[0, 200:, 0])
        panels = {
            look_of(name): FunctionPanel.of(*shown, _predict(model, task))._replace(
                draws=_functions(model, task)
            )
            for name, model in models.items()
        }
        rows.append((f"{num_context} context points", panels))
    return rows


def _functions(model: NeuralProcess, task: Task) -> Tensor:
    """Three coherent functions, [3, T]: draws of z_G or, for a model that has none, samples by autoregression."""
    generator = torch.Generator(task.x_target.device).manual_seed(0)
    return model.sample_functions(task, 3, noise=False, block=8, generator=generator)[:, 0, :, 0]
