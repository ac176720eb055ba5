"""scikit-learn's conformance suite over both estimators with each registered model.

    python benchmarks/conformance.py

The tests check the default model only. The script writes `results/estimators/conformance.json`.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from pathlib import Path

import sklearn
import torch
from sklearn.utils.estimator_checks import check_estimator

import dsvnp
from dsvnp import MODELS, NPClassifier, NPRegressor

OUT = Path(__file__).parents[1] / "results" / "estimators" / "conformance.json"
SETTINGS = {"n_replicas": 1, "max_steps": 40, "width": 32, "n_draws": 2, "random_state": 0, "device": "cpu"}
EXPECTED = {"check_sample_weight_equivalence_on_dense_data": "copies of a row are held out together"}


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for model in MODELS:
        for kind in (NPRegressor, NPClassifier):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                checks = check_estimator(
                    kind(model, **SETTINGS), expected_failed_checks=EXPECTED, on_skip=None, on_fail=None
                )
            failed = {c["check_name"]: str(c["exception"])[:200] for c in checks if c["status"] == "failed"}
            counts = dict(Counter(check["status"] for check in checks))
            rows.append({"model": model, "estimator": kind.__name__, **counts, "failures": failed})
            print(rows[-1], flush=True)
    record = {
        "scikit-learn": sklearn.__version__,
        "dsvnp": dsvnp.__version__,
        "settings": SETTINGS,
        "rows": rows,
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
