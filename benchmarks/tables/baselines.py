"""All rivals by name: importing this module registers them.

python benchmarks/tables/baselines.py    # list them with their settings
"""

from __future__ import annotations

import classifiers
import regressors
from registry import MODELS

__all__ = ["MODELS", "classifiers", "regressors"]


def main() -> None:
    """Print every model."""
    for (kind, name), model in sorted(MODELS.items()):
        print(f"{kind:15} {name:12} {model.settings}")


if __name__ == "__main__":
    main()
