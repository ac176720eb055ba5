"""Small files in the formats in which the three tables are published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.io

ARFF = {"water-quality/wq.arff": (16, 14), "scm20d/scm20d.arff": (61, 16)}


def smooth_rows(num_rows: int, dim_x: int, dim_y: int, seed: int = 0) -> np.ndarray:
    """Inputs, then outputs that are smooth functions of them, each in another unit, with a little noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, dim_x))
    y = np.tanh(x @ rng.normal(size=(dim_x, dim_y)) / dim_x**0.5) + 0.1 * rng.normal(size=(num_rows, dim_y))
    return np.hstack([x, (1 + np.arange(dim_y)) * y])


def write_tables(directory: Path, num_rows: int = 61) -> Path:
    """Write all three; the number of rows is odd: the halves differ by one."""
    for path, (dim_x, dim_y) in ARFF.items():
        rows = smooth_rows(num_rows, dim_x, dim_y)
        header = "".join(f"@attribute a{i} numeric\n" for i in range(dim_x + dim_y))
        data = "".join(",".join(map(repr, row)) + "\n" for row in rows.tolist())
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(f"@relation r\n{header}@data\n{data}", encoding="utf-8")
    (directory / "sarcos").mkdir(exist_ok=True)
    rows = smooth_rows(num_rows, 21, 7)
    for name, part in (("sarcos_inv", rows[:-9]), ("sarcos_inv_test", rows[-12:])):
        scipy.io.savemat(directory / "sarcos" / f"{name}.mat", {name: part})
    return directory
