"""`python -m dsvnp` is the command `dsvnp`."""

from dsvnp.cli import main

main()
