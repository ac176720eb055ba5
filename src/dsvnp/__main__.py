"""`python -m dsvnp` is the command `dsvnp`."""

from dsvnp.cli import main

if __name__ == "__main__":  # a worker of Dask imports this file as well
    main()
