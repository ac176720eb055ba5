"""Curves from a stochastic process: Tables 2 and A.1, the second and third rows of Fig. 2 (PROTOCOLS §2).

Beside the tables: NLL against the size of the context, calibration, the divergences during training, and draws.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import torch

from dsvnp.data.curves import Curves, curve_tasks, draw_curves
from dsvnp.experiments.base import Experiment, Measurement, UnitResult, Workplace
from dsvnp.metrics import pit, pit_coverage, point_nll, point_squared_error
from dsvnp.models import Architecture, NeuralProcess, make_model
from dsvnp.objectives import Objective
from dsvnp.report.figures import Line, Panel, functions_figure, lines_figure
from dsvnp.task import Task
from dsvnp.training import Fleet, Schedule, Settings

INSIDE, OUTSIDE = (-2.0, 2.0), (-4.0, 4.0)
LEVELS = [i / 20 for i in range(1, 20)]

# Sizes of [encoder hidden, dim_lat, decoder hidden].
VARIANTS = {
    "paper": Architecture(1, 1, encoder=(32, 32), dim_lat=128, decoder=(128,)),
    "wide": Architecture(1, 1, encoder=(128, 128), dim_lat=128, decoder=(128, 128)),
}


@dataclass(frozen=True)
class CurvesExperiment(Experiment):
    """Settings of the curves; the defaults are the paper's where it gives them.

    Attributes:
        variants: architectures to run: "paper", and "wide" with 128 units in all layers.
        num_steps: iterations.
        learning_rate: of Adam.
        schedule: "constant" as in the paper, or "cosine".
        batch_size: functions a step.
        num_points: points of a training function.
        max_context: largest context in training and in interpolation.
        extra_context: largest context in extrapolation.
        beta_local: weight of DSVNP's local divergence.
        num_tests: realisations to test on.
        test_points: points of each.
        num_global: draws of z_G in prediction.
    """

    name: ClassVar[str] = "curves"
    paper: ClassVar[dict[tuple[str, str, str, str], tuple[float, float]]] = {
        ("curves", model, "nll", split): value
        for split, row in {
            "inter-J": {"np": (-0.958, 2e-5), "attnnp": (-1.149, 8e-6), "dsvnp": (-0.975, 2e-5)},
            "inter-P": {
                "cnp": (-0.802, 1e-6),
                "np": (-0.949, 2e-5),
                "attnnp": (-1.141, 6e-6),
                "dsvnp": (-0.970, 2e-5),
            },
            "extra-J": {"np": (8.192, 7e1), "attnnp": (8.091, 7e2), "dsvnp": (4.203, 9e0)},
            "extra-P": {
                "cnp": (1.764, 1e-1),
                "np": (8.573, 8e1),
                "attnnp": (8.172, 7e2),
                "dsvnp": (4.303, 1e1),
            },
        }.items()
        for model, value in row.items()
    }

    variants: tuple[str, ...] = ("paper", "wide")
    num_steps: int = 800_000
    learning_rate: float = 5e-4
    schedule: str = "constant"
    batch_size: int = 16
    num_points: int = 100
    max_context: int = 50
    extra_context: int = 200
    beta_local: float = 1000.0
    num_tests: int = 2000
    test_points: int = 400
    num_global: int = 32

    @classmethod
    def presets(cls) -> dict[str, Self]:
        """Seconds in CI, minutes on two cores, or the paper's setting on a GPU."""
        return {
            "smoke": cls(
                preset="smoke",
                num_seeds=2,
                variants=("paper",),
                num_steps=20,
                num_points=20,
                max_context=10,
                extra_context=20,
                num_tests=20,
                test_points=40,
                num_global=4,
            ),
            "quick": cls(
                preset="quick",
                variants=("wide",),
                num_steps=5000,
                learning_rate=1e-3,
                schedule="cosine",
                num_points=64,
                max_context=32,
                extra_context=64,
                num_tests=200,
                test_points=128,
            ),
            "paper": cls(preset="paper", num_seeds=5, precision="tf32"),
        }

    def labels(self) -> list[str]:
        """Each model in the paper's architecture, then in the wider one."""
        return [model if v == "paper" else f"{model}-{v}" for v in self.variants for model in self.models]

    def settings(self, model: str) -> Settings:
        """How to train a model."""
        return Settings(
            self.num_steps,
            self.learning_rate,
            schedule=Schedule(self.schedule, warmup=min(1000, self.num_steps // 20)),
            objective=Objective(beta_local=self.beta_local if model == "dsvnp" else 1.0),
            precision=self.precision,
            log_every=max(10, self.num_steps // 100),
            checkpoint_every=max(10, self.num_steps // 8),
        )

    def run_unit(self, model: str, seeds: Sequence[int], place: Workplace) -> UnitResult:
        """Train, then measure on the same unseen functions for all."""
        name, variant = [*model.split("-"), "paper"][:2]
        source = Curves(self.batch_size, self.num_points, 3, self.max_context, refresh_every=1024)
        make = partial(make_model, name, VARIANTS[variant])
        fleet = self.fleet(model, make, source, seeds, self.settings(name), place)
        nets = [fleet.replica(row) for row in range(len(seeds))]
        measurements = [
            m for split, tasks in self._test_sets(place).items() for m in self._measure(nets, split, tasks)
        ]
        return UnitResult(model, tuple(seeds), tuple(measurements), self._extras(nets, fleet, place, model))

    def _test_sets(self, place: Workplace) -> dict[str, list[Task]]:
        """Interpolation and extrapolation, with contexts of uniform sizes and of exactly the largest."""
        sets = {}
        ranges = (("inter", INSIDE, self.max_context), ("extra", OUTSIDE, self.extra_context))
        for number, (part, interval, largest) in enumerate(ranges):
            for suffix, smallest in (("", 3), ("-max", largest)):
                generator = torch.Generator(place.device).manual_seed(1_000_000 + number)
                sets[f"{part}{suffix}"] = curve_tasks(
                    self.num_tests, self.test_points, (smallest, largest), generator, interval
                )
        return sets

    def _measure(self, nets: Sequence[NeuralProcess], split: str, tasks: Sequence[Task]) -> list[Measurement]:
        """NLL over all points (J) and outside the context (P), and the squared error outside it."""
        part, _, suffix = split.partition("-")
        suffix = f"-{suffix}" if suffix else ""
        nll: dict[str, list[float]] = {"J": [], "P": []}
        mse = []
        for net in nets:
            predictions = [(self._predict(net, task), task) for task in tasks]
            for points in ("J", "P"):
                values = torch.cat([point_nll(p, task, points) for p, task in predictions])
                nll[points].append(float(values.mean()))
            mse.append(float(torch.cat([point_squared_error(p, t, "P") for p, t in predictions]).mean()))
        rows = [
            Measurement("curves", "nll", f"{part}-{points}{suffix}", "nats/point", tuple(values))
            for points, values in nll.items()
        ]
        return [*rows, Measurement("curves", "mse", f"{part}-P{suffix}", "raw", tuple(mse))]

    def _predict(self, net: NeuralProcess, task: Task) -> Any:
        """Predict with draws that are the same for each call."""
        generator = torch.Generator(task.x_target.device).manual_seed(0)
        return net.predict(task, self.num_global, generator=generator, validate=False)

    def _extras(
        self, nets: Sequence[NeuralProcess], fleet: Fleet, place: Workplace, model: str
    ) -> dict[str, Any]:
        """What the figures show: panels, NLL by context size, calibration, and the training log."""
        log = place.out / "logs" / f"{model}-seeds-{fleet.seeds[0]}-{fleet.seeds[-1]}.jsonl"
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        terms = ("step", "log_likelihood", "kl_local", "kl_global")
        sizes = [n for n in (1, 2, 3, 5, 8, 12, 20, 30, 40, 50) if n <= self.max_context]
        return {
            "training": {name: [line[name] for line in lines] for name in terms},
            "context_sizes": sizes,
            "nll_by_context": [self._nll_by_context(net, sizes, place) for net in nets],
            "levels": LEVELS,
            "coverage": [self._coverage(net, place) for net in nets],
            "panels": self._panels(nets[0], place) if 0 in fleet.seeds else None,
        }

    def _nll_by_context(self, net: NeuralProcess, sizes: Sequence[int], place: Workplace) -> list[float]:
        """NLL outside the context for contexts of exactly each size."""
        out = []
        for size in sizes:
            generator = torch.Generator(place.device).manual_seed(2_000_000)
            tasks = curve_tasks(min(500, self.num_tests), self.test_points, (size, size), generator, INSIDE)
            out.append(float(torch.cat([point_nll(self._predict(net, t), t, "P") for t in tasks]).mean()))
        return out

    def _coverage(self, net: NeuralProcess, place: Workplace) -> list[float]:
        """Share of points outside the context inside central intervals of each level."""
        generator = torch.Generator(place.device).manual_seed(3_000_000)
        tasks = curve_tasks(
            min(500, self.num_tests), self.test_points, (3, self.max_context), generator, INSIDE
        )
        return pit_coverage(torch.cat([pit(self._predict(net, t), t, "P") for t in tasks]), LEVELS).tolist()

    def _panels(self, net: NeuralProcess, place: Workplace) -> dict[str, Any]:
        """One function inside the interval of training and one beyond it, the same for every model."""
        panels = {}
        for title, interval, num_context in (("interpolation", INSIDE, 15), ("extrapolation", OUTSIDE, 30)):
            generator = torch.Generator("cpu").manual_seed(4)  # the same curve on every device
            grid = torch.linspace(*interval, 200)
            places = interval[0] + (interval[1] - interval[0]) * torch.rand(num_context, generator=generator)
            x = torch.cat([grid, places])[None, :, None]
            y = draw_curves(x, generator)
            task = Task.from_sets(x[:, 200:], y[:, 200:], x[:, :200]).to(place.device)
            panel = Panel.of(grid, y[0, :200, 0], places, y[0, 200:, 0], self._predict(net, task))
            panels[title] = panel.to_lists()
        return panels

    def draw(self, units: Sequence[UnitResult], out: Path) -> list[Path]:
        """Fig. 2's rows, NLL by context size, calibration, and the divergences during training."""
        shown = {u.model: u.extras["panels"] for u in units if u.extras["panels"]}
        paths = []
        for variant in ("paper", "wide"):
            models = {m: panels for m, panels in shown.items() if m.endswith("-wide") == (variant == "wide")}
            if models:
                rows = [
                    (title, {m: Panel.from_lists(panels[title]) for m, panels in models.items()})
                    for title in ("interpolation", "extrapolation")
                ]
                paths.append(functions_figure(rows, out / f"functions-{variant}.svg", trained=INSIDE))
        by_context = _lines(units, "context_sizes", "nll_by_context")
        coverage = _lines(units, "levels", "coverage")
        panels = [("interpolation, outside the context", "context points", "NLL (nats/point)", by_context)]
        paths.append(lines_figure(panels, out / "nll-by-context.svg"))
        panels = [("interpolation, outside the context", "nominal coverage", "empirical coverage", coverage)]
        paths.append(lines_figure(panels, out / "calibration.svg", diagonal=True))
        return [*paths, self._draw_training(units, out)]

    def _draw_training(self, units: Sequence[UnitResult], out: Path) -> Path:
        """The bound's terms during training: is the latent used?"""
        titles = {"log_likelihood": "log-likelihood", "kl_global": "KL_G", "kl_local": "KL_L"}
        panels = []
        for term, title in titles.items():
            lines: dict[str, Line] = {}
            for unit in units:
                training = unit.extras["training"]
                seeds = list(zip(*training[term], strict=True))  # one row a seed
                if any(any(values) for values in seeds):
                    lines.setdefault(unit.model, Line(training["step"], seeds))
            panels.append((title, "step", "nats/point", lines))
        return lines_figure(panels, out / "training.svg")


def _lines(units: Sequence[UnitResult], x: str, y: str) -> dict[str, Line]:
    """Lines of each model with all its seeds."""
    lines: dict[str, Line] = {}
    for unit in units:
        before = lines.get(unit.model, Line(unit.extras[x], []))
        lines[unit.model] = Line(before.x, [*before.y, *unit.extras[y]])
    return lines
