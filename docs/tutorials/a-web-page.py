# %% [markdown]
# # From a trained model to a web page
#
# **I have trained a network. How do my readers try it, without Python and without a server of mine?**
#
# The page of the [playground](../playground.md) is a folder of static files with a forward pass of its own, in plain
# JavaScript. Put your network into a copy of that folder, and any static host shows it: readers move points, and your
# network answers in their browser. First the network: a small transformer that learns sums of a line and a wave.

# %%
from functools import partial

import torch

from dsvnp import Architecture, Task, Transformer, make_model
from dsvnp.plotting import plot_predictive
from dsvnp.sources.base import TaskSource, first_points, take_batch
from dsvnp.training import Adam, Fleet, Schedule, Settings, train

torch.set_num_threads(1)


class Waves(TaskSource):
    """y = a x + b sin(3 x + c) with noise, at random inputs: a source fills in four methods."""

    def __init__(self, batch_size=16, num_points=48, refresh_every=200):
        self.batch_size, self.num_points, self.refresh_every = batch_size, num_points, refresh_every

    def static(self):
        return {}  # tensors that never change

    def pool(self, generator, device):  # functions for `refresh_every` steps, each used once
        shape = (self.batch_size * self.refresh_every, self.num_points, 1)
        x = 4 * torch.rand(shape, generator=generator, device=device) - 2
        a, b, c = torch.randn(3, shape[0], 1, 1, generator=generator, device=device)
        noise = 0.05 * torch.randn(shape, generator=generator, device=device)
        return {"x": x, "y": 0.5 * a * x + b * torch.sin(3 * x + 3 * c) + noise}

    def uniform_shapes(self):  # random numbers of a batch: the sizes of the contexts
        return {"context": (self.batch_size,)}

    def batch(self, tensors, uniforms, step):
        x, y = (take_batch(tensors[name], step, self.batch_size) for name in ("x", "y"))
        return Task.from_points(x, y, first_points(uniforms["context"], 2, 24, x))


small = Transformer(width=32, num_layers=3, num_heads=4, feedforward=64, embedder=(32, 32))
arch = Architecture(dim_x=1, dim_y=1, transformer=small, decoder=(32,), sigma_floor=0.01)
settings = Settings(
    num_steps=2000,
    learning_rate=2e-3,
    optimizer=Adam(clip_norm=1.0),
    schedule=Schedule("cosine", warmup=100),
)
fleet = Fleet(partial(make_model, "tnp", arch), Waves(), seeds=[0], settings=settings)
train(fleet)
model = fleet.replica(0)

x = torch.tensor([-1.6, -1.0, -0.6, 0.1, 0.5, 1.1, 1.7]).reshape(1, -1, 1)
y = 0.4 * x + torch.sin(3 * x + 1)
grid = torch.linspace(-2, 2, 200).reshape(1, -1, 1)
found = model.predict(Task.from_sets(x, y, grid))
plot_predictive(found, grid, known=(x, y), truth=0.4 * grid + torch.sin(3 * grid + 1))

# %% [markdown]
# ## One file for the browser
#
# `export` writes weights in half precision and the architecture into one file; `load` reads it back into torch. The
# page computes the same from it: a test of ours compares the two for every model.

# %%
from pathlib import Path
from shutil import copytree

from dsvnp.playground import PAGE
from dsvnp.playground.export import export, load

copytree(PAGE, "my-page")
file = Path("my-page/weights/curves-tnp.safetensors")
count = export(model, file, {"note": "a line and a wave"})
again = load(file).predict(Task.from_sets(x, y, grid))
difference = ((again.mean - found.mean).abs() / found.stddev).max()
print(f"{count} weights, {file.stat().st_size / 1000:.0f} kB")
print(f"half precision moves the mean by at most {difference:.3f} standard deviations")

# %% [markdown]
# ## Serve the folder
#
# `my-page` is the whole site. Look at it here with `python -m http.server --directory my-page`, then copy it to any
# static host. The tab *Curves* now shows your network as TNP; the exact Gaussian process next to it still belongs to
# the functions of ours; you may want to hide it.

# %%
files = [path for path in Path("my-page").rglob("*") if path.is_file()]
print(f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB in all")

# %% [markdown]
# The networks of the playground were made in this way by `studies/playground_training.py`. The page can compute CNP,
# NP, AttnNP, DSVNP, TNP and DSVTNP with a Gaussian likelihood.
