"""Summary: how good predictions of known rows are, next to simple predictions.

For a regression: NLL and CRPS per output, squared error and coverage in the user's units, next to a mean predictor and
the ensemble's own linear part (ridge); the root of the squared error for each output alone, `rmse`, or `rmse_` and the
name of the output, since outputs may have different units. For classes: NLL (log-loss), accuracy, balanced accuracy,
area under the ROC curve and calibration error, next to the shares of the classes and logistic regression.
"""

import warnings
from collections.abc import Sequence
from io import BytesIO

import torch
from torch import Tensor

from dsvnp.metrics import accuracy, auroc, expected_calibration_error
from dsvnp.naming import shown
from dsvnp.predictive import CategoricalPredictive, GaussianPredictive, Predictive

OF_CLASSES = {"mean predictor": "class shares", "nll": "log-loss", "balanced_accuracy": "balanced"}
LEVELS = (0.5, 0.9)  # of the central intervals whose coverage is reported

Summary = dict[str, dict[str, float]]  # name of a predictor → metric → value


def prior_of(y: Tensor, num_classes: int) -> Tensor:
    """What the outputs are without a look at the inputs: mean and deviation [2, D], or shares of classes [classes]."""
    if not y.is_floating_point():
        return torch.bincount(y[:, 0], minlength=num_classes).double() / len(y)
    mean = y.nanmean(0)
    return torch.stack([mean, (y - mean).square().nanmean(0).sqrt()])


def blind(prior: Tensor, rows: int) -> Predictive:
    """The mean predictor, or the shares of the classes, for so many rows."""
    if prior.ndim == 1:
        return CategoricalPredictive(prior.clamp(min=1e-12).log().expand(1, 1, 1, rows, -1))
    mean, deviation = prior
    return normal(mean.expand(rows, -1), deviation)


def normal(mean: Tensor, deviation: Tensor) -> GaussianPredictive:
    """One normal for each output of each row, [rows, D]."""
    return GaussianPredictive(mean[None, None, None], deviation.clamp(min=1e-12))


def summarise(predictions: dict[str, Predictive], y: Tensor, names: Sequence[str] = ("y",)) -> Summary:
    """Measure some predictors on rows whose outputs y [rows, D], with these names, are known."""
    return {name: measure(predictive, y, names) for name, predictive in predictions.items()}


def measure(predictive: Predictive, y: Tensor, names: Sequence[str]) -> dict[str, float]:
    """The metrics of one predictor."""
    if isinstance(predictive, CategoricalPredictive):
        return _measure_classes(predictive, y)
    assert isinstance(predictive, GaussianPredictive)
    known = ~torch.isnan(y)
    error = (predictive.mean[0] - y).square()
    off_centre = (2 * pit_of(predictive, y) - 1).abs()
    covered = {
        f"coverage_{round(100 * level)}": float((off_centre <= level).double().mean()) for level in LEVELS
    }
    roots = [float(error[known[:, i], i].mean().sqrt()) for i in range(y.shape[1])]
    return {
        "nll": float(nll_each(predictive, y).mean()),
        "crps": float(predictive.crps(y[None])[0][known].mean()),
        "mse": float(error[known].mean()),
        **dict(zip(_names_of_roots(names), roots, strict=True)),
        **covered,
    }


def nll_each(predictive: Predictive, y: Tensor) -> Tensor:
    """Negative log-density of each known output by itself, or log-loss of each label, [N]."""
    if isinstance(predictive, CategoricalPredictive):
        return -predictive.log_prob(y[None])[0]
    assert isinstance(predictive, GaussianPredictive)
    # Outputs by themselves: a sum over outputs would be another number for tables of other widths.
    return -predictive.log_prob_each(y[None])[0][~torch.isnan(y)]


def pit_of(predictive: GaussianPredictive, y: Tensor) -> Tensor:
    """P(Y ≤ y) of each known output, [N]."""
    return predictive.cdf(y[None])[0][~torch.isnan(y)]


def calibration_of(predictive: Predictive, y: Tensor) -> Tensor:
    """What a calibration plot needs: PITs [N], or class probabilities with the label behind them [N, classes + 1]."""
    if isinstance(predictive, GaussianPredictive):
        return pit_of(predictive, y)
    return torch.cat([predictive.mean[0], y.double()], 1)


def as_text(summary: Summary) -> list[list[str]]:
    """The summary as rows of a table, the header first; of errors only the root, and only if there is one output."""
    first = next(iter(summary.values()))
    metrics = [name for name in first if name != "mse" and not name.startswith("rmse_")]
    # Where classes are predicted the blind guess is no mean; heads are short enough for a narrow terminal.
    called = OF_CLASSES if "accuracy" in first else {}
    rows = [
        [called.get(name, name), *(f"{values[metric]:.4g}" for metric in metrics)]
        for name, values in summary.items()
    ]
    return [["", *(called.get(name, name) for name in metrics)], *rows]


def errors_as_text(summary: Summary, targets: Sequence[str]) -> list[list[str]]:
    """The rmse of several targets as rows of a table, a line for each: its unit is its own."""
    keys = _names_of_roots(targets)
    rows = [
        [target, *(f"{values[key]:.4g}" for values in summary.values())]
        for target, key in zip(targets, keys, strict=True)
    ]
    return [["", *summary], *rows]


def _names_of_roots(names: Sequence[str]) -> list[str]:
    """What the rmse of each output is called in a summary."""
    return ["rmse"] if len(names) == 1 else [f"rmse_{name}" for name in names]


def _measure_classes(predictive: CategoricalPredictive, y: Tensor) -> dict[str, float]:
    """Log-loss, accuracy (also with each class counted alike), area under the ROC curve, calibration error."""
    probs, labels = predictive.mean[0], y[:, 0]
    recall = [float((probs.argmax(1) == label)[labels == label].double().mean()) for label in labels.unique()]
    return {
        "nll": float(nll_each(predictive, y).mean()),
        "accuracy": float(accuracy(probs, labels)),
        "balanced_accuracy": sum(recall) / len(recall),
        "auc": _auc(probs, labels),
        "ece": float(expected_calibration_error(probs, labels)),
    }


def _auc(probs: Tensor, labels: Tensor) -> float:
    """Area under the ROC curve of each class against all others, averaged over those that are there; NaN for one."""
    there = labels.unique()
    if len(there) < 2:
        return float("nan")
    areas = [auroc(probs[labels != label, label], probs[labels == label, label]) for label in there]
    return float(torch.stack(areas).mean())


def classes_as_text(predictive: Predictive, y: Tensor, classes: Sequence[object]) -> list[list[str]]:
    """A table with one row per class: how often it is there and predicted, its precision, recall and AUC."""
    probs, labels = predictive.mean[0], y[:, 0]
    guess = probs.argmax(1)
    rows = []
    for index, name in enumerate(classes):
        true, said = labels == index, guess == index
        hits = float((true & said).sum())
        area = (
            float(auroc(probs[~true, index], probs[true, index]))
            if 0 < int(true.sum()) < len(true)
            else float("nan")
        )
        shares = [hits / float(count) if count else float("nan") for count in (said.sum(), true.sum())]
        rows.append(
            [str(name), str(int(true.sum())), str(int(said.sum())), *(f"{v:.4g}" for v in (*shares, area))]
        )
    return [["class", "rows", "predicted", "precision", "recall", "auc"], *rows]


def calibration_plot(calibration: Tensor, title: str) -> bytes:
    """A PNG of `calibration_of`: nominal against empirical coverage, or confidence against accuracy for classes."""
    from matplotlib.figure import Figure

    from dsvnp.plotting.everyday import draw_calibration
    from dsvnp.plotting.style import house_style

    buffer = BytesIO()
    with house_style():
        figure = Figure(figsize=(3.6, 3.6))
        axes = draw_calibration(calibration, figure.add_subplot())
        axes.set_title(shown(title), parse_math=False)  # a name is no formula
        with warnings.catch_warnings():
            # letters that the font lacks become boxes
            warnings.filterwarnings("ignore", "Glyph .* missing from")
            figure.savefig(buffer, format="png")
    return buffer.getvalue()
