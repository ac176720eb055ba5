"""One process at a time pretrains in a folder."""

import io
from functools import partial

import pytest
from rich.console import Console

from dsvnp.locks import FolderInUseError, folder_lock
from dsvnp.models import Architecture, make_model
from dsvnp.pretrained.recipes import PretrainingRecipe
from dsvnp.pretrained.training import pretrain
from dsvnp.sources.base import Rotation
from dsvnp.sources.curves import Curves

ARCH = Architecture(1, 1, encoder=(4,), dim_lat=4, decoder=(4,))
SOURCE = Curves(batch_size=2, num_points=6, min_context=1, max_context=3, refresh_every=4)
RECIPE = PretrainingRecipe("small", partial(make_model, "np", ARCH), Rotation((SOURCE,)), decay=1, warmup=1)


def test_a_folder_in_use_is_refused_and_a_free_one_is_not(tmp_path):
    work = partial(
        pretrain,
        RECIPE,
        tmp_path,
        "cpu",
        num_steps=2,
        precision="float32",
        console=Console(file=io.StringIO()),
    )
    with folder_lock(tmp_path), pytest.raises(FolderInUseError, match="is in use by process"):
        work()
    assert list(tmp_path.iterdir()) == []
    assert work().num_steps_taken == 2
    assert not (tmp_path / ".lock").exists()
