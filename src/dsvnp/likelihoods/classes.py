"""Likelihoods of labels: classes, and tasks that hold numbers or classes."""

import torch
from torch import Tensor

from dsvnp.likelihoods.base import Likelihood
from dsvnp.likelihoods.numbers import GaussianMixture
from dsvnp.networks import full_precision
from dsvnp.predictive import CategoricalPredictive, Predictive


class Categorical(Likelihood):
    """One of several classes; labels are integers [B, T, 1], read by an encoder as one-hot vectors."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = self.dim_raw = self.dim_encoded = num_classes

    def encode(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """One-hot vectors."""
        classes = torch.arange(self.num_classes, device=y.device)
        return (y == classes).to(dtype)

    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """Log-probability of the label."""
        log_probs = full_precision(raw).log_softmax(-1)
        return (log_probs * self.encode(y, log_probs.dtype)).sum(-1)

    def components(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Log-probabilities of the classes."""
        return (full_precision(raw).log_softmax(-1),)

    def predictive(self, *components: Tensor) -> Predictive:
        """A mixture of categorical distributions."""
        return CategoricalPredictive(*components)

    def check(self, y: Tensor, name: str) -> None:
        """Refuse labels that are not one integer per point."""
        if y.is_floating_point() or y.dtype == torch.bool:
            raise ValueError(f"{name} must hold integer class labels, got {y.dtype}; pass y.long()")
        if y.shape[-1] != 1:
            raise ValueError(
                f"{name} must hold one label per point, [tasks, points, 1], got {tuple(y.shape)}; "
                "pass class indices, not one-hot vectors"
            )

    def check_values(self, y: Tensor, mask: Tensor, name: str) -> None:
        """Refuse labels outside 0 … num_classes − 1."""
        labels = y.squeeze(-1)[mask]
        if labels.numel() and (int(labels.min()) < 0 or int(labels.max()) >= self.num_classes):
            raise ValueError(
                f"{name} must hold labels from 0 to {self.num_classes - 1}, got {int(labels.min())} to "
                f"{int(labels.max())}; renumber the classes or raise num_classes"
            )


class NumberOrClass(Likelihood):
    """One trunk, two heads: a task's outputs are numbers (a mixture of Gaussians) or labels (classes).

    y is [B, T, 2]: a number or a label, and 0 or 1 for which of the two. It is for training; a network trained with it
    becomes one with a plain likelihood before it predicts (`dsvnp.pretrained`).
    """

    def __init__(self, num_classes: int, numbers: GaussianMixture) -> None:
        super().__init__()
        self.numbers, self.classes = numbers, Categorical(num_classes)
        self.dim_raw = numbers.dim_raw + num_classes
        self.dim_encoded = 2 + num_classes

    def encode(self, y: Tensor, dtype: torch.dtype) -> Tensor:
        """The number or 0, the flag, and the label's one-hot vector or zeros."""
        value, flag = y[..., :1], y[..., 1:]
        is_class = flag > 0.5
        number = torch.where(is_class, 0.0, self.numbers.encode(value, dtype))
        one_hot = torch.where(is_class, self.classes.encode(value, dtype), 0.0)
        return torch.cat([number, flag.to(dtype), one_hot], dim=-1)

    def log_prob(self, raw: Tensor, y: Tensor) -> Tensor:
        """Log-density of a number, log-probability of a label."""
        value, is_class = y[..., :1], y[..., 1] > 0.5
        of_number, of_class = raw.split([self.numbers.dim_raw, self.classes.dim_raw], dim=-1)
        number = self.numbers.log_prob(of_number, torch.where(is_class.unsqueeze(-1), 0.0, value))
        return torch.where(is_class, self.classes.log_prob(of_class, value), number)

    def components(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Refuse: which of the two heads is meant is not known here."""
        raise ValueError(
            "this network predicts numbers or classes, got no choice; take one with "
            "dsvnp.pretrained.for_numbers(model) or for_classes(model, num_classes)"
        )

    def predictive(self, *components: Tensor) -> Predictive:
        """Refuse, like `components`."""
        raise ValueError("choose numbers or classes first")

    def check(self, y: Tensor, name: str) -> None:
        """Refuse outputs without their flag."""
        if y.shape[-1] != 2 or not y.is_floating_point():
            raise ValueError(
                f"{name} must be floating point of shape [tasks, points, 2], a value and its kind, got {y.dtype} "
                f"{tuple(y.shape)}; pass 0 as the kind of a number and 1 as that of a label"
            )
