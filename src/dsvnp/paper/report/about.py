"""What a report says of each experiment: what it asks, what differs from the paper and why, what its figures show."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from dsvnp.paper.report.runs import Run
from dsvnp.paper.report.words import WORDS
from dsvnp.plotting.style import text_of


class About(NamedTuple):
    """An experiment in words.

    Attributes:
        title: its name for a reader.
        paper: where the paper has it.
        question: what it asks.
        differs: what differs from the paper or settles what it leaves open, and why.
        figures: what each figure shows, by the name of its file or a pattern of names.
        table_per: a table for each "dataset", with splits as columns, or for each "split".
        repeat: what a value of a row's `seeds` is: a "seed", a "split", a "fold".
        headline: patterns of "metric/split/unit" whose tables stand first; the others can be unfolded.
    """

    title: str
    paper: str = ""
    question: str = ""
    differs: tuple[str, ...] = ()
    figures: Mapping[str, str] = {}
    table_per: str = "dataset"
    repeat: str = "seed"
    headline: tuple[str, ...] = ("*",)


EXPERIMENTS: dict[str, About] = {
    "toy": About(
        "Toy function",
        "Fig. 2, first row",
        "One function, seen at 12 points in [0, 0.6] and 8 in [0.8, 1]. Is a model less sure in the gap than at the "
        "points, and less sure still outside [0, 1]?",
        (
            "The paper shows a picture. We measure the mean predictive σ in the three places, over several draws of "
            "the 20 points.",
            "Training tasks are random subsets of the 20 points as context and all 20 as targets: the paper does not "
            "say how a single function becomes tasks.",
            "The decoder has three hidden layers. The printed one has none and cannot draw this function.",
            "An exact Gaussian process with an RBF kernel stands beside the models where GPyTorch (extra gp) is there.",
        ),
        {
            "functions": "The toy function as each model sees it from 20 points: mean, ±3σ, a few draws and the truth, "
            "over [−0.5, 1.5]; dotted lines mark [0, 1]."
        },
    ),
    "curves": About(
        "Curves from a stochastic process",
        "Tables 2 and A.1; Fig. 2, second and third rows",
        "Functions y = sin(y⁰ + x) with y⁰ from a Gaussian process. How well is a new one predicted from a few of its "
        "points, inside the interval of training and beyond it?",
        (
            "The printed decoder is one linear layer, which cannot draw a curve from z. Ours has one hidden layer of "
            "128; “wide” names a variant with a wider and deeper network, more points a task, and schedules for the "
            "learning rate and the divergences.",
            "The paper gives NLL for up to 50 (200) context points without saying how many. We draw their number from "
            "U[3, max] and, as “full context”, take exactly the largest; the paper's figure stands beside both.",
            "Extrapolation is on [−4, 4]; batch size and points of a task are ours.",
            "σ has a floor of 0.1, the practice of the code the paper builds on, so that NLL cannot fall below −1.384.",
            "CNP's row over all points (J) has no counterpart in the paper.",
        ),
        {
            "functions-paper": "Two unseen curves as each model sees them, in the paper's architecture: inside the "
            "interval of training (upper row) and beyond it (lower row).",
            "functions-wide": "Two unseen curves as each model sees them, in the wider architecture: inside the "
            "interval of training (upper row) and beyond it (lower row).",
            "nll-by-context": "NLL outside the context against the number of context points.",
            "calibration": "Calibration: how many points fall inside central intervals of each nominal level; the "
            "dotted diagonal is perfect.",
            "training": "The terms of the bound during training: log-likelihood, KL_G and KL_L. A divergence of zero "
            "means a latent that is not used.",
        },
        headline=("nll/*", "nll-median/extra-*", "mse/*"),
    ),
    "cartpole": About(
        "Cart-Pole system identification",
        "Table 3",
        "A cart of unknown mass and friction. From 100 observed transitions of a configuration not seen in training, "
        "how well is the next state predicted?",
        (
            "The paper names only the source of its simulator. Ours has PILCO's equations and constants, one Euler "
            "step of 0.1 s.",
            "The paper says 16 test configurations in one place and 14 in another. Of 20, 6 train and 14 test.",
            "NLL is summed over the four outputs and MSE averaged over them, in raw units; the paper does not say "
            "which points it counts, so its figure stands beside all points (J) and those outside the context (P).",
            "“oracle-average” knows the mechanics exactly but not the configuration: below its error a model "
            "identifies the system.",
            "“DSVNP tuned” has its β_local, annealing, draws and sizes chosen on a training mass that was held "
            "out; “NP annealed” shares its annealing, to tell what that alone does.",
        ),
        {
            "by-context": "NLL and squared error on unseen configurations against the number of context transitions.",
            "rollouts": "One roll-out of ten steps in an unseen configuration: position and angle, truth against "
            "each model's particles.",
            "rollout-error": "Squared error and coverage of 90 % intervals along roll-outs of ten steps.",
        },
    ),
    "multioutput": About(
        "Multi-output regression",
        "Table 4",
        "Three real tables with 7 to 16 outputs. How well are the rows of a test fold predicted?",
        (
            "The paper's figures have the size of our training errors, on WQ and SCM20d in unit variance, on SARCOS in "
            "raw units; as test errors they cannot be. Every figure of ours says its fold and its unit.",
            "The scaler is fitted on the training fold alone. Standardising before the split, as the paper does, lets "
            "the test fold leak.",
            "Context rows at test come from the training fold; from the test batch, as the paper suggests, beside it.",
            "SARCOS has repeated rows, which we drop before splitting; where only a part of it is at hand, the rows "
            "say so.",
            "Ridge, nearest neighbours, extra-trees and a sparse Gaussian process stand in the same table, on the "
            "same folds.",
            "“gaussian” learns σ where the paper's recipe minimises squared errors. “strong” is a recipe of ours: an "
            "ensemble, contexts chosen for each target among all training rows, chosen on the training "
            "fold but for its constants (decision 4).",
        ),
        {
            "errors": "Squared error in unit variance by model, a plot a data set: filled on the test fold, hollow on "
            "the rows that were learned from.",
            "calibration": "Calibration on the test fold: how many outputs fall inside central intervals of each "
            "nominal level; the dotted diagonal is perfect.",
        },
        table_per="split",
        repeat="split",
        headline=(
            "mse/test/standard",
            "mse/train/standard",
            "mse/test/raw",
            "nll/test/*",
            "coverage-90/test/*",
        ),
    ),
    "images": About(
        "Images and out-of-distribution detection",
        "Table A.2; Fig. 4",
        "Does a classifier's predictive entropy tell images of its own domain from others and from noise?",
        (
            "Entropy alone rewards a model for being unsure of everything. AUROC, AUPR, FPR at 95 % recall, accuracy, "
            "NLL and calibration error stand beside it.",
            "Dropout rates are those of the text, not of the caption; there is no augmentation in the paper recipe.",
            "The 100 context images at test come from the training part.",
            "Noise sets are fed as the paper generates them, and in the value range of the domain beside it.",
            "CNP's loss is divided by all images of a batch, so that each weighs the same beside any context.",
            "“strong” is a recipe of ours with augmentation and a learning-rate schedule. By that for CIFAR-10, images "
            "of AttnNP's context do not attend to themselves in training, or it would learn to look up their labels.",
        ),
        {
            "entropy-cdf": "Fig. 4: the share of images whose predictive entropy does not exceed a value, for each "
            "set. Images of the domain should rise at once, others late.",
            "entropy-cdf-strong": "The same for the strong recipe.",
            "reliability": "Reliability: accuracy against confidence on the test images; the diagonal is perfect.",
            "training": "The terms of the bound during training.",
            "sure-*": "The images of each set that the model is most and least sure of, what it takes them for, and "
            "their predictive entropy.",
        },
        table_per="split",
        headline=("accuracy/test/*", "nll/test/*", "ece/test/*", "entropy/test/*", "auroc/test/*"),
    ),
    "ablations": About(
        "Ablations",
        "",
        "Where the paper can be read in two ways, what does the other reading give?",
        (
            "Each row is DSVNP in the paper's architecture with one decision of ours changed; NP stands beside it. The "
            "curves train for fewer steps than above: compare the rows with each other.",
            "“context-posterior”: q(z_G) sees the context alone. “undivided-kl”: KL_G is not divided by the number of "
            "points. “separate-encoders”: one for q(z_G), one for p(z_G). “exp-scale”: σ of latents by exp. "
            "“latent-hidden”: a hidden layer between the mean over the context and z_G.",
            "“beta-local-…”, “beta-global-5”: other weights of KL_L and KL_G (ours: β_local 1000 on the curves, 5 on "
            "the Cart-Pole; β_global 1). “annealed”: both rise from 0 over the first half. “constrained”: KL_L is held "
            "at 0.05 nats by a multiplier, as in the paper's bound with constraints.",
        ),
        {
            "ablations": "NLL of each variant on the curves and on the Cart-Pole, a dot a seed; the bar is their mean."
        },
        headline=("nll/*", "mse/test-*"),
    ),
    "estimators": About(
        "Estimators on tables of one's own",
        "",
        "How do NPRegressor and NPClassifier with their defaults compare with what scikit-learn has?",
        (
            "The paper has no such table. RMSE and NLL are in units of each output's deviation on the training fold.",
            "GP is a constant times an RBF kernel with a length for each input, plus noise, on 2000 rows at most.",
        ),
        table_per="split",
        repeat="fold",
    ),
}


def about(run: Run) -> About:
    """What is known of a run's experiment."""
    return EXPERIMENTS.get(run.experiment, About(run.experiment))


def order_of(run: Run) -> tuple[int, int, str]:
    """A key that sorts runs as the paper has its experiments, and their domains."""
    names, domains, domain = list(EXPERIMENTS), list(WORDS), run.config.get("domain")
    place = names.index(run.experiment) if run.experiment in names else len(names)
    return place, domains.index(domain) if domain in domains else 0, str(run.folder)


def figures_of(run: Run) -> list[tuple[Path, str]]:
    """A run's figures and what they show, in the order of the texts; one without a text has its name in words."""
    texts = about(run).figures
    found = []
    for path in run.figures:
        matching = [pattern for pattern in texts if fnmatch(path.stem, pattern)]
        pattern = matching[0] if matching else path.stem
        place = [*texts, pattern].index(pattern)
        shown = texts.get(pattern, f"{about(run).title}: {path.stem.replace('-', ' ')}.")
        if pattern.endswith("*"):  # a figure for each model
            shown = f"{text_of(path.stem.removeprefix(pattern[:-1]))}: {shown[0].lower()}{shown[1:]}"
        found.append((place, path, shown))
    return [(path, shown) for _, path, shown in sorted(found)]


def is_headline(run: Run, metric: str, split: str, unit: str) -> bool:
    """Whether a table is one that a reader wants to see first."""
    return any(fnmatch(f"{metric}/{split}/{unit}", pattern) for pattern in about(run).headline)
