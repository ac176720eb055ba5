"""What distributions of numbers and of classes share: rows in parts, and functions drawn for all of them.

Rows are predicted some at a time. Components of moderate size are kept, and every further question about the same rows
is answered from them; those of larger tables are computed again, and memory does not grow with the table.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from torch import Tensor

from dsvnp.naming import at_least_one
from dsvnp.predictive import (
    CategoricalPredictive,
    CoherentPredictive,
    GaussianPredictive,
    Predictive,
    concatenate,
)
from dsvnp.sources.table import known_rows
from dsvnp.tabular.columns import answer, kind_of
from dsvnp.tabular.trained.ensemble import Answering, Draws

CHUNK = 2000  # rows that are predicted at once
MANY_ROWS = 1000  # above which networks compute in single precision: a prediction changes in its sixth digit
MOST_KEPT = 2**25  # numbers of components that are kept
FUNCTIONS_AT_ONCE = 16  # for each member
LOCALS_OF_A_FUNCTION = 8  # draws of z_* that a function without noise is averaged over

Array = NDArray[Any]


@dataclass(frozen=True)
class Form:
    """How answers leave: of which shape, under which names, as which kind of table."""

    like: Any  # the rows that were asked about
    names: tuple[str, ...]  # names of the outputs
    one: bool  # whether there is one output and its axis is dropped
    as_asked: bool  # whether answers are of the kind of `like`; arrays otherwise

    def __call__(self, values: Array) -> Any:
        """Values for each row and output, [rows, outputs]."""
        return self.named(values[:, 0] if self.one else values, self.names)

    def named(self, values: Array, names: Sequence[str]) -> Any:
        """Values [rows] or [rows, columns] under names of their own."""
        return answer(values, self.like, names) if self.as_asked else values

    @property
    def is_frame(self) -> bool:
        """Whether answers of several columns are data frames."""
        return self.as_asked and kind_of(self.like) == "frame"


class RowDistribution:
    """The predictive distribution of rows; see the two kinds."""

    def __init__(
        self,
        condition: Callable[[Draws], Answering],  # what reads the context, given the draws to use
        x: Tensor,  # the rows as numbers, [rows, D]
        draws: Draws,  # the latent draws
        form: Form,  # how answers leave
        read: Callable[[Any], Tensor],  # turns a user's y into a tensor
        # score of rows that lie outside of what is known, given their predictive and inputs, [T]
        strangeness: Callable[[Predictive, Tensor], Tensor],
        keep: bool = True,  # keep components for further questions
    ) -> None:
        self._condition, self._x, self._form, self._read = condition, x, form, read
        self._draws = replace(draws, single=len(x) > MANY_ROWS)
        self._strangeness = strangeness
        self._answering: Answering | None = None
        self._keep = keep
        self._kept: dict[int, Predictive] = {}
        self.num_functions = 0  # members × draws of z_G, known after the first answer

    def __len__(self) -> int:
        return len(self._x)

    @property
    def predictive(self) -> Predictive:
        """All components at once, [K, S, 1, rows, outputs or classes]: a mixture as the models return it."""
        return concatenate([part for _, part in self._parts()], dim=3)

    def reduce(self, *functions: Callable[[Predictive, slice], Tensor]) -> list[Array]:
        """Apply functions to the predictive of each part of the rows, in one pass; each gives rows first."""
        parts = [[function(part, rows) for function in functions] for rows, part in self._parts()]
        return [torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)]

    def named(self, values: Array, names: Sequence[str]) -> Any:
        """Values of each row, [rows] or [rows, columns], as the kind of table that was asked with."""
        return self._form.named(values, names)

    def _parts(self) -> Iterator[tuple[slice, Predictive]]:
        """The predictive of some rows after the other."""
        if self._answering is None:
            self._answering = self._condition(self._draws)
        for rows in self._chunks():
            part = self._kept.get(rows.start)
            if part is None:
                part = _finite(self._answering(self._x[rows]), rows.start)
                size = math.prod(part.shape) // part.shape[3] * len(self._x)
                if self._keep and 2 * size <= MOST_KEPT:
                    self._kept[rows.start] = part
            self.num_functions = part.shape[0]
            yield rows, part

    def _chunks(self) -> Iterator[slice]:
        for start in range(0, len(self._x), CHUNK):
            yield slice(start, min(start + CHUNK, len(self._x)))

    @property
    def ood_score(self) -> Any:
        """How far outside of what is known a row lies, the larger the farther; only comparisons have a meaning."""
        return self._form.named(self.reduce(self.strangeness)[0], ["ood_score"])

    def strangeness(self, predictive: Predictive, rows: slice) -> Tensor:
        """`ood_score` as a reduction."""
        return self._strangeness(predictive, self._x[rows])

    def log_prob(self, y: Any) -> Any:
        """Log-density of a row's known outputs together, or log-probability of its label; NaN where none is known."""
        outputs = self._read(y)
        known = known_rows(outputs)
        filled = outputs if outputs.is_floating_point() else outputs.clamp(min=0)  # −1 is no class

        def score(predictive: Predictive, rows: slice) -> Tensor:
            values = predictive.log_prob(filled[None, rows].to(predictive.mean.device))[0]
            return torch.where(known[rows].to(values.device), values, torch.nan)

        return self._form.named(self.reduce(score)[0], ["log_prob"])

    def sample(self, n_samples: int = 1, random_state: Any = 0, noise: bool = True) -> Array:
        """Draw functions: y of all rows together, [rows, outputs, samples], without the axis of a single output.

        Each draw keeps one member and one z_G; rows have a z_* and noise of their own.

        Args:
            n_samples: how many.
            random_state: an integer gives the same draws each time.
            noise: False gives E[y | z_G, x] with z_* averaged: smooth functions, for plots and for planning; of
                classes their probabilities.
        """
        at_least_one(n_samples=n_samples)
        rng = check_random_state(random_state)
        out: list[Array] = []
        while len(out) < n_samples:
            out += self._functions(n_samples - len(out), rng, noise)
        return np.stack(out, -1)

    def _functions(self, wanted: int, rng: np.random.RandomState, noise: bool) -> list[Array]:
        """At most so many draws, each of another function, [rows, outputs] each."""
        count = min(FUNCTIONS_AT_ONCE, wanted)
        seed = int(rng.randint(2**31 - 1))
        locals_each = 1 if noise else LOCALS_OF_A_FUNCTION
        ask = self._condition(
            Draws(
                count,
                locals_each,
                seed,
                own=seed + 1 if noise else None,
                paired=False,
                single=self._draws.single,
            )
        )
        generator = torch.Generator().manual_seed(seed + 2)
        chosen: list[int] = []
        parts = []
        for rows in self._chunks():
            predictive = ask(self._x[rows])
            if isinstance(predictive, CoherentPredictive):  # a function joins all rows: no chunk by itself
                rest = [ask(self._x[more]) for more in self._chunks() if more.start > rows.start]
                whole = concatenate([predictive, *rest], 3)
                chosen = rng.randint(whole.shape[0], size=wanted).tolist()
                return [_function(whole, k, noise, generator).cpu().numpy() for k in chosen]
            # A model without latents has one function for each member, however many draws are asked for.
            chosen = chosen or rng.permutation(predictive.shape[0])[:wanted].tolist()
            parts.append([_function(predictive, k, noise, generator) for k in chosen])
        return [torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True)]


def _finite(predictive: Predictive, start: int) -> Predictive:
    """The prediction of rows from number `start` on, unless a part of it is no number: an answer nobody can use."""
    means = getattr(predictive, "loc", None)
    for array in predictive.arrays():
        # NaN is not below ∞ either; the logarithm of a probability may be −∞.
        odd = ~array.isfinite() if array is means else ~(array < torch.inf)
        if bool(odd.any()):
            row = start + int(odd.nonzero()[0, 3]) if odd.ndim == 5 and odd.shape[3] > 1 else start
            raise ValueError(
                f"the prediction of row {row} is not finite; look for extreme values in it, or fit the model again"
            )
    return predictive


def one_function(predictive: Predictive, k: int) -> Predictive:
    """The predictive of one draw of z_G."""
    return predictive.map(lambda array: array[k : k + 1])


def _function(predictive: Predictive, k: int, noise: bool, generator: torch.Generator) -> Tensor:
    """One function at some rows, [T, D]; labels are [T, 1]."""
    one = one_function(predictive, k)
    cpu = one.map(lambda array: array.cpu())  # drawn on the CPU: the same on every device
    if not noise:
        return cpu.function_mean(generator)[0]
    assert isinstance(cpu, GaussianPredictive | CategoricalPredictive)
    return cpu.sample(1, generator)[0, 0]
