"""The part of the contract that is about several targets together: functions, and their joint likelihood.

    sample_functions   draws of z_G, or chains of the model's own samples
    log_prob_joint     the chain rule with the true outputs

`dsvnp.autoregression` has the equations. Any model gets both from its predictive distribution.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from dsvnp import autoregression
from dsvnp.likelihoods import Likelihood
from dsvnp.models.noise import evaluating
from dsvnp.naming import at_least_one
from dsvnp.networks import Shape
from dsvnp.predictive import Predictive
from dsvnp.task import Task


class FunctionDraws(nn.Module, ABC):
    """What a `NeuralProcess` does with several targets together, on top of one pass over context and targets."""

    likelihood: Likelihood

    @abstractmethod
    def noise_shapes(self, *args: Any, **kwargs: Any) -> dict[str, Shape]:
        """See `NeuralProcess`, which has all three."""

    @abstractmethod
    def check(self, *args: Any, **kwargs: Any) -> None: ...

    @abstractmethod
    def _predict(self, *args: Any, **kwargs: Any) -> Predictive: ...

    @final
    def sample_functions(
        self,
        task: Task,
        num_samples: int = 1,
        *,
        noise: bool = True,
        autoregressive: bool | None = None,
        block: int = 1,
        visits: int | None = None,
        num_local: int = 16,
        known_noise: float = 0.0,
        differentiable: bool = False,
        generator: torch.Generator | None = None,
        chunk: int = 2**16,
        validate: bool = True,
    ) -> Tensor:
        """Draw functions at the targets, [N, B, T, D], coherent within each task; `y_target` is never read.

        Labels are [N, B, T, 1]; class probabilities if noise is False. Empty slots hold 0.

        Args:
            task: context and targets.
            num_samples: number of functions N for each task.
            noise: whether outputs are observations; otherwise each is the mean that its function has there.
            autoregressive: whether a function is a chain of the model's own samples (see `dsvnp.autoregression`) or a
                draw: of z_G, of a dropout mask, or of a coherent likelihood. None takes a draw where the model has one
                and a chain elsewhere: without either, the outputs of a conditional model are independent. Pass True
                where z_G has collapsed, as that of DSVTNP does: its draws hardly differ. `epistemic / variance` of
                `predict(task, num_local=16)` is the share of the variance that z_G carries.
            block: number of targets that are sampled at once, if autoregressive.
            visits: number of targets, in a random order, that a chain visits; all others are predicted from these, each
                by itself. A network is at a loss with more context than it was trained on: let context and visits
                together be no more than that. None visits all.
            num_local: draws of each z_* that a function without noise is averaged over.
            known_noise: σ of noise that samples go without. Where data have less noise than a floor under σ says, a
                chain of samples with the floor's noise is a context unlike those of training.
            differentiable: keep the graph for gradients; the choice of a component or a label has none.
            generator: where everything is drawn from.
            chunk: number of targets decoded at once or, if autoregressive, of points encoded at once.
            validate: look at the values of the task first.
        """
        if autoregressive is None:
            shapes = self.noise_shapes(task.num_tasks, task.num_targets, 1, 1, shared=True)
            autoregressive = not (self.likelihood.coherent or set(shapes) - {"local"})
        task = replace(task, y_target=None)
        self.check(task, 1, num_local, validate)
        at_least_one(num_samples=num_samples, block=block, **({} if visits is None else {"visits": visits}))
        num_local = 1 if noise else num_local
        usual: dict[str, Any] = {"num_local": num_local, "noise": None}
        usual |= {"generator": generator, "chunk": chunk}
        one = partial(self._one_draw, known_noise=known_noise, **usual)
        with torch.set_grad_enabled(differentiable and torch.is_grad_enabled()), evaluating(self):
            if not autoregressive:
                drawn = self._predict(task, num_samples, **usual).without_noise(known_noise)
                drawn = drawn.map(lambda array: array.expand(num_samples, *array.shape[1:]))
                return self._filled(task, autoregression.functions_of(drawn, noise, generator))
            orders = autoregression.random_orders(task, num_samples, generator)
            chains, visited = autoregression.draw_chains(one, task, orders, block, generator, chunk, visits)
            if noise and visits is None:  # a chain holds observations already
                return chains
            drawn = autoregression.given_chains(one, task, chains, visited, chunk)
            functions = self._filled(task, autoregression.functions_of(drawn, noise, generator))
            return torch.where(visited.unsqueeze(-1), chains, functions) if noise else functions

    @staticmethod
    def _filled(task: Task, functions: Tensor) -> Tensor:
        """Functions with 0 in empty slots."""
        return torch.where(task.mask_target.unsqueeze(-1), functions, 0)

    @final
    @torch.no_grad()
    def log_prob_joint(
        self,
        task: Task,
        orders: int | Tensor = 8,
        *,
        block: int = 1,
        num_global: int = 32,
        num_local: int = 1,
        generator: torch.Generator | None = None,
        chunk: int = 2**16,
        validate: bool = True,
    ) -> Tensor:
        """Log-density of all targets of a task together by the chain rule with the true outputs, [B].

        The mean over orders of ln p(y_T | C), not divided by the number of targets. Left out are empty slots, targets
        that belong to the context, and missing outputs (NaN). Where the model has latents, each block is scored by K·S
        draws, whose log-mean is too low on average, and z_G is drawn again for each block: the result does not bound
        the density under one z_G for all targets, which `dsvnp.log_likelihood(..., per="task")` estimates.

        Args:
            task: tasks with y_target.
            orders: number of random orders, or the orders themselves, [N, B, T] or [N, 1, T] for all tasks alike: which
                slot is visited first, second, …
            block: number of targets that are scored at once; all of them give the product of the marginals, or for
                models with z_G its joint density.
            num_global: draws K of z_G for each block.
            num_local: draws S of each z_*.
            generator: where orders and noise are drawn from.
            chunk: number of points encoded at once.
            validate: look at the values of the task first.
        """
        self.check(task, num_global, num_local, validate)
        at_least_one(block=block, orders=len(orders) if isinstance(orders, Tensor) else orders)
        orders = autoregression.orders_of(task, orders, generator)

        def conditional(step: Task) -> Predictive:
            return self._predict(step, num_global, num_local, None, generator, chunk)

        with evaluating(self):
            values = autoregression.chain_log_prob(
                conditional, task, orders, block, num_global * num_local, chunk
            )
        return values.mean(0)

    def _one_draw(self, task: Task, known_noise: float = 0.0, **settings: Any) -> Predictive:
        """One pass with one draw of z_G, as a chain takes it at each step."""
        return self._predict(task, num_global=1, **settings).without_noise(known_noise)
