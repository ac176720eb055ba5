"""FunctionPosterior: K functions f_k(x) = E[y | z_G^k, x], fixed and joint over all inputs, and their sampler.

A sample is one of the functions. The sampler takes them in order, the same ones for every X: an acquisition function
that compares X with earlier points compares values of one function.
"""

import torch
from botorch.posteriors.ensemble import EnsemblePosterior
from botorch.sampling.get_sampler import GetSampler
from botorch.sampling.index_sampler import IndexSampler


class FunctionPosterior(EnsemblePosterior):
    """Values of K functions at q points, [..., K, q, m]."""


class DrawSampler(IndexSampler):
    """Takes functions 1, 2, …, K, 1, … of a `FunctionPosterior` in place of random ones."""

    def _construct_base_samples(self, posterior: FunctionPosterior) -> None:
        shape = self.sample_shape + posterior.batch_shape
        index = torch.arange(self.sample_shape.numel(), device=posterior.device) % posterior.ensemble_size
        index = index.reshape(*self.sample_shape, *(1,) * len(posterior.batch_shape)).expand(shape)
        self.register_buffer("base_samples", index)


def _sampler_of_functions(
    posterior: FunctionPosterior, sample_shape: torch.Size, *, seed: int | None = None
) -> DrawSampler:
    """The sampler that BoTorch's acquisition functions take by default."""
    return DrawSampler(sample_shape=sample_shape, seed=seed)


GetSampler.register(FunctionPosterior)(_sampler_of_functions)
