# %% [markdown]
# # A new model in fifty lines
#
# **I have an idea for a neural process. What must I write to train it, compare it, and use it on tables?**
#
# One class with four hooks. Everything else (the loss, prediction, fleets of replicas, functions drawn point by
# point, the estimators) comes with the contract. The idea for today: a CNP takes the plain *mean* of the encoded
# points, and loses detail. Let each target take a mean in which near points count more, with learned length scales:
#
#     r_* = Σ_i w_i r_i,    w_i ∝ exp(−½ ‖(x_* − x_i) / ℓ‖²),    p(y_* | x_*, r_*)

# %%
import torch
from torch import Tensor, nn

from dsvnp import MODELS, Architecture, NeuralProcess, Task
from dsvnp.networks import MLP
from dsvnp.objectives import Draws


class NearCNP(NeuralProcess):
    """A conditional neural process whose mean over the context prefers near points."""

    name = "near-cnp"
    summary = "CNP with a mean that prefers near points, by learned length scales"
    scores_context = False

    def _build(self, embedding):
        arch = self.arch
        self.encoder = MLP([arch.dim_x, self.likelihood.dim_encoded], arch.encoder, arch.dim_lat)
        self.decoder = MLP([arch.dim_x, arch.dim_lat, 1], arch.decoder, self.likelihood.dim_raw)
        self.log_scale = nn.Parameter(torch.full((arch.dim_x,), -1.0))

    def noise_shapes(self, num_tasks, num_targets, num_global, num_local, shared):
        return {}  # nothing is random

    def draws(self, task: Task, noise) -> Draws:
        y, in_context = task.all_points()  # training: all points, some of which are context
        raw = self._decode(task.x_target, *self._encode(task.x_target, y, in_context))
        counted = self.counted(task)
        return Draws(self.likelihood.score(raw, y, counted), counted)

    def summarise(self, task: Task, noise):
        return self._encode(task.x_context, task.y_context, task.mask_context)

    def decode(self, summary, x_target: Tensor, noise) -> Tensor:
        return self._decode(x_target, *summary)

    def _encode(self, x, y, mask):
        return x, self.encoder(x, self.likelihood.encode(y, x.dtype)), mask

    def _decode(self, x_target, x, r, mask):
        scaled = self.log_scale.exp()
        logits = -0.5 * torch.cdist(x_target / scaled, x / scaled).square()  # [B, T, C]
        weights = logits.exp() * mask[:, None, :]
        total = weights.sum(-1, keepdim=True)  # [B, T, 1]; 0 for an empty context
        near = weights @ torch.where(mask[..., None], r, 0.0) / (total + 1e-6)  # [B, T, H]
        return self.decoder(x_target, near, total.log1p())[None, None]  # [1, 1, B, T, raw]


MODELS[NearCNP.name] = NearCNP  # now every tool knows it

# %% [markdown]
# `total` tells the decoder how much evidence there is: 0 far from all points, and for an empty context.
#
# ## Train it next to a CNP
#
# The engine trains any model of the contract. A fleet has one replica per seed, in one step.

# %%
from functools import partial

import matplotlib.pyplot as plt

from dsvnp import make_model
from dsvnp.metrics import nll
from dsvnp.plotting import plot_predictive
from dsvnp.plotting.style import COLOURS
from dsvnp.sources.curves import Curves, curve_tasks
from dsvnp.training import Adam, Fleet, Schedule, Settings, train

torch.set_num_threads(1)
arch = Architecture(dim_x=1, dim_y=1, encoder=(64, 64), dim_lat=64, decoder=(64, 64))
settings = Settings(
    num_steps=1500,
    learning_rate=3e-3,
    optimizer=Adam(clip_norm=1.0),
    schedule=Schedule("cosine", warmup=100),
)
source = Curves(batch_size=8, num_points=64, max_context=32)
trained = {}
for name in ("cnp", "near-cnp"):
    fleet = Fleet(partial(make_model, name, arch), source, seeds=[0], settings=settings)
    train(fleet)
    trained[name] = fleet.replica(0)

(unseen,) = curve_tasks(100, 100, (20, 20), torch.Generator().manual_seed(1))
figure, axes = plt.subplots(1, 2, figsize=(10, 3), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, trained.items()):
    found = model.predict(unseen)
    context = unseen.mask_context[0]
    known = (unseen.x_context[0, context], unseen.y_context[0, context])
    plot_predictive(found, unseen.x_target[0], ax, known=known, colour=COLOURS.get(name, COLOURS["dsvnp"]))
    ax.set_title(f"{name}: NLL {nll(found, unseen):.2f}")

# %% [markdown]
# ## What comes for free
#
# Functions drawn point by point, for a model without any latent variable:

# %%
from dsvnp.plotting import plot_functions

grid = torch.linspace(-2, 2, 60).reshape(1, -1, 1)
task = Task.from_sets(unseen.x_context[:1, :4], unseen.y_context[:1, :4], grid)
functions = trained["near-cnp"].sample_functions(task, 8, generator=torch.Generator().manual_seed(0))
plot_functions(functions[:, 0, :, 0].T, grid, known=(task.x_context, task.y_context))

# %% [markdown]
# And the estimators: pass the name. (`max_steps` is small here, to keep this page quick.)

# %%
from sklearn.datasets import load_diabetes

from dsvnp import NPRegressor

X, y = load_diabetes(return_X_y=True)
regressor = NPRegressor("near-cnp", n_replicas=2, max_steps=300, random_state=0).fit(X[:300], y[:300])
for name, values in regressor.evaluate(X[300:], y[300:]).summary.items():
    print(f"{name:>16}: rmse {values['rmse']:.1f}")

# %% [markdown]
# To keep a model, put the class into `src/dsvnp/models/` and its name into `MODELS` there: the tests of the contract
# then check empty contexts, masks, noise, gradients and compiled fleets for it. The contract is in [the
# reference](../reference/models.md).
