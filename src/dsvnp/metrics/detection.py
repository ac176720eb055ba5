"""Detection of what is out of distribution, from scores of two sets, higher meaning more out of distribution."""

import torch
from torch import Tensor

from dsvnp.metrics.points import Points, point_mask
from dsvnp.predictive import Predictive
from dsvnp.task import Task


def entropies(predictive: Predictive, task: Task, points: Points = "P") -> Tensor:
    """Predictive entropy of each counted point, [N] ([N, D] for a regression); needs no y_target."""
    return predictive.entropy()[point_mask(task, points)]


def empirical_cdf(values: Tensor, at: Tensor) -> Tensor:
    """Share of values [N] that do not exceed each number of `at`, as in the paper's CDFs of entropies."""
    ordered = values.flatten().double().sort().values
    return torch.searchsorted(ordered, at.to(ordered), right=True) / len(ordered)


def auroc(domain: Tensor, ood: Tensor) -> Tensor:
    """Probability that an o.o.d. score exceeds a domain score, a tie counting one half, []."""
    domain, ood = _scores(domain, ood)
    below, not_above = torch.searchsorted(domain, ood), torch.searchsorted(domain, ood, right=True)
    return (0.5 * (below + not_above).double()).mean() / len(domain)


def aupr(domain: Tensor, ood: Tensor) -> Tensor:
    """Average precision with o.o.d. as the positive class, [] (AUPR-Out of the literature).

    Σ_n (R_n − R_{n−1}) P_n over the distinct scores, without interpolation, as scikit-learn has it: the mean
    over o.o.d. points of the precision at their own score. A random score reaches the share of o.o.d. points:
    compare only sets of the same sizes. For AUPR-In, domain as the positive class, call `aupr(-ood, -domain)`.
    """
    domain, ood = _scores(domain, ood)
    true = len(ood) - torch.searchsorted(ood, ood)  # o.o.d. points that score at least as much
    false = len(domain) - torch.searchsorted(domain, ood)
    return (true.double() / (true + false)).mean()


def fpr_at_95(domain: Tensor, ood: Tensor) -> Tensor:
    """Share of o.o.d. points taken for domain points where 95 % of the domain is accepted, [].

    FPR at 95 % TPR with the *domain* as the positive class (Liang et al., 2018). The threshold is the
    smallest domain score that at least 95 % of the domain does not exceed; points on it are accepted. Others
    call o.o.d. positive and ask for false alarms where 95 % of it is detected (Hendrycks et al., 2019): that
    is `fpr_at_95(-ood, -domain)`.
    """
    domain, ood = _scores(domain, ood)
    needed = -(-95 * len(domain) // 100)  # 95 % of the domain, rounded up in whole numbers
    threshold = domain[needed - 1]
    return (ood <= threshold).double().mean()


def _scores(domain: Tensor, ood: Tensor) -> tuple[Tensor, Tensor]:
    """Both sets flat, sorted and in double precision, after refusing what has no order."""
    for name, scores in (("domain", domain), ("ood", ood)):
        if scores.numel() == 0:
            raise ValueError(f"{name} has no score to compare; pass at least one")
        if torch.isnan(scores).any():
            raise ValueError(f"{name} holds NaN, which has no rank among scores; drop it or fix the model")
    return domain.flatten().double().sort().values, ood.flatten().double().sort().values
