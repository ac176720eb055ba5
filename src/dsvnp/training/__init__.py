"""Training: fleets of replicas in one step, with checkpoints that survive anything."""

from dsvnp.training.checkpoint import CheckpointError
from dsvnp.training.distributed import Cluster
from dsvnp.training.fleet import Fleet
from dsvnp.training.hooks import reporting_to
from dsvnp.training.loop import Interrupted, train
from dsvnp.training.optimizer import Adam
from dsvnp.training.progress import Reporter
from dsvnp.training.schedule import Schedule
from dsvnp.training.settings import Settings

__all__ = [
    "Adam",
    "CheckpointError",
    "Cluster",
    "Fleet",
    "Interrupted",
    "Reporter",
    "Schedule",
    "Settings",
    "reporting_to",
    "train",
]
