"""Training: fleets of replicas in one step, with checkpoints that survive anything."""

from dsvnp.training.checkpoint import CheckpointError as CheckpointError
from dsvnp.training.distributed import Cluster as Cluster
from dsvnp.training.fleet import Fleet as Fleet
from dsvnp.training.hooks import reporting_to as reporting_to
from dsvnp.training.loop import Interrupted as Interrupted
from dsvnp.training.loop import train as train
from dsvnp.training.optimizer import Adam as Adam
from dsvnp.training.progress import Reporter as Reporter
from dsvnp.training.schedule import Schedule as Schedule
from dsvnp.training.settings import Settings as Settings
