"""Train the copula that joins the targets of the shipped network for curves, and write the network with it.

    python -m studies.curve_copula --start FOLDER --out FOLDER

`--start` holds the network, as `dsvnp pretrain curves` writes it; a copula that it has is left out. Its predictions of
single targets stay the same. The log has, for every hundred steps, what the copula adds to the log-likelihood of a
target on synthetic curves that are used once.
"""

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from dsvnp.models.tnp import TNP
from dsvnp.pretrained.copula import CopulaSettings, single, train_copula
from dsvnp.pretrained.loading import load_pretrained, read_card, save_pretrained
from dsvnp.sources.priors.curves import CurvePrior, CurveSettings

NAME = "curves"
EVERY = 100  # steps of a line of the log


class Log:
    """A line of JSON with the settings, then one for every `EVERY` steps with the mean gain."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path, self.gains, self.start = path, list[float](), time.time()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write(settings)

    def __call__(self, step: int, gain: float) -> None:
        self.gains.append(gain)
        if step % EVERY == 0:
            line = {"step": step, "gain": round(sum(self.gains) / EVERY, 4)}
            line["seconds"] = round(time.time() - self.start, 1)
            self.gains.clear()
            self._write(line)

    def _write(self, line: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def main() -> None:
    """Train the copula and write the network."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--start", type=Path, required=True, help="folder with the network")
    parser.add_argument("--out", type=Path, required=True, help="folder for the network and its log")
    parser.add_argument("--steps", type=int, default=CopulaSettings().num_steps)
    parser.add_argument("--batch", type=int, default=16, help="curves of a step, 128 points each")
    parser.add_argument("--seed", type=int, default=100, help="none that the network was trained with")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    model = load_pretrained(NAME, chosen.start).to(chosen.device)
    assert isinstance(model, TNP)
    model = single(model)
    settings = CopulaSettings(num_steps=chosen.steps, seed=chosen.seed)
    source = CurvePrior(CurveSettings(batch_size=chosen.batch, num_points=128, refresh_every=16))
    log = Log(chosen.out / "curve-copula.jsonl", {"settings": asdict(settings), "batch": chosen.batch})
    made = train_copula(model, source, settings, log)
    save_pretrained(made, read_card(NAME, chosen.start), chosen.out)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
