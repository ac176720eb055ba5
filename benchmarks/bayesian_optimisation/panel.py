"""The panel of `dsvnp.botorch` as a method of the benchmark: Gaussian processes, a pretrained network, or both.

Its expected improvement is computed at random points of the cube and near the best observations; gradient ascents start
from the best of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from botorch.generation.gen import gen_candidates_scipy
from torch import Tensor

from benchmarks.bayesian_optimisation.methods import Search, around, shipped
from benchmarks.bayesian_optimisation.problems import DOUBLE
from dsvnp.botorch import NeuralProcessModel, PanelLogEI
from dsvnp.botorch.panel import SHARES


@dataclass(frozen=True)
class Panel:
    """The point with the largest expected improvement of a panel.

    Attributes:
        search: how it is maximised.
        network: name of a pretrained network; None for Gaussian processes alone.
        gaussian_processes: whether they are in the panel.
        folder: of the network's weights, if not the package's.
        shares: of the views' warps.
    """

    search: Search
    network: str | None = None
    gaussian_processes: bool = True
    folder: Path | None = None
    shares: tuple[float | None, ...] = SHARES

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        make = None if self.network is None else self._make
        panel = PanelLogEI(x, y, make, gaussian_processes=self.gaussian_processes, shares=self.shares)
        count, dim = self.search.raw_samples, x.shape[-1]
        top = x[y.flatten().topk(min(3, len(x))).indices]
        near = [around(top, count // 4, 0.1), around(top[:1], count // 8, 0.02)]
        points = torch.cat([torch.rand(count, dim, dtype=DOUBLE), *near])
        with torch.no_grad():
            values = panel(points.unsqueeze(1))
        start = points[values.topk(self.search.num_restarts).indices].unsqueeze(1)
        options = {"maxiter": self.search.max_steps}
        found, values = gen_candidates_scipy(
            start, panel, lower_bounds=0.0, upper_bounds=1.0, options=options
        )
        return found[values.argmax()].detach()

    def _make(self, x: Tensor, y: Tensor) -> NeuralProcessModel:
        assert self.network is not None
        return NeuralProcessModel(
            shipped(self.network, self.folder), x, y, scaling=self.network, num_orders=1
        )
