"""Likelihoods: how a decoder's raw output becomes a distribution of y, and how y enters an encoder.

Each has `dim_raw` (what the decoder must put out), `dim_encoded` (the size of y as an encoder sees it),
`encode`, `score` for training (from `log_prob`), and `components` with `predictive` for use.

    Gaussian          Π_d N(y_d; μ_d, σ_d²)                  outputs independent given the latents
    FixedGaussian     the same with one fixed σ, trained by squared error
    GaussianMixture   Σ_m w_m Π_d N(y_d; μ_md, σ_md²)        several branches, shared by all outputs
    LowRankGaussian   N(y; μ, diag(σ²) + W Wᵀ)               outputs that vary together
    Coherent          N(y_T; μ, diag(σ²) + W Wᵀ)             all targets of a task together: whole functions
    CoherentMixture   mixtures joined by a Gaussian copula   the same for any distributions of single targets
    Categorical       one of several classes
    NumberOrClass     a mixture of Gaussians or classes, as each task says: for networks that learn from both
"""

from dsvnp.likelihoods.base import Likelihood as Likelihood
from dsvnp.likelihoods.classes import Categorical as Categorical
from dsvnp.likelihoods.classes import NumberOrClass as NumberOrClass
from dsvnp.likelihoods.coherent import Coherent as Coherent
from dsvnp.likelihoods.coherent import CoherentMixture as CoherentMixture
from dsvnp.likelihoods.numbers import FixedGaussian as FixedGaussian
from dsvnp.likelihoods.numbers import Gaussian as Gaussian
from dsvnp.likelihoods.numbers import GaussianMixture as GaussianMixture
from dsvnp.likelihoods.numbers import LearnedSigma as LearnedSigma
from dsvnp.likelihoods.numbers import LowRankGaussian as LowRankGaussian
from dsvnp.likelihoods.numbers import Regression as Regression
