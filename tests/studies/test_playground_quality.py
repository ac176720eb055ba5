"""What stands next to the playground's networks is what nothing can beat, and each network gets one line."""

import math
import shutil

import pytest
import torch

from dsvnp.playground import PAGE
from studies.playground_quality import branches, cartpole, curves, digits, main
from studies.playground_tasks import SENSOR


def seeded():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("limit", [curves, cartpole], ids=["curves", "cart-pole"])
def test_a_context_helps_and_knowledge_has_its_limit(limit):
    without, some, many = (limit(size, 48, seeded())[1] for size in (0, 5, 20))
    assert without < some < many
    if limit is cartpole:  # the mass known: noise alone, in two outputs
        assert many == pytest.approx(-math.log(2 * math.pi * math.e * SENSOR**2), abs=0.2)


def test_tasks_have_contexts_of_the_asked_size():
    images = torch.randint(256, (10_100, 28, 28), dtype=torch.uint8, generator=seeded())
    for made, _ in (branches(7, 4, seeded()), digits(images, 7, 4, seeded())):
        assert (made[0].in_context.sum(1) == 7).all()


def test_each_network_gets_a_line(tmp_path, capsys):
    shutil.copy(PAGE / "weights" / "curves-cnp.safetensors", tmp_path)
    shutil.copy(PAGE / "weights" / "digits-np.safetensors", tmp_path)  # left out without images
    main(["--weights", str(tmp_path), "--tasks", "12"])
    (line,) = capsys.readouterr().out.splitlines()
    name, *cells = line.split("  ")
    assert name.strip() == "curves-cnp"
    for cell in filter(None, cells):
        own, limit = cell.split(":")[1].replace("(", "").replace(")", "").split()
        assert float(own) < float(limit)
