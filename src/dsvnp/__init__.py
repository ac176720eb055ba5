"""Neural processes with uncertainty you can use."""

__version__ = "0.1.0"
