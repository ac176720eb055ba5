"""Figures in the house style; the functions named here draw on axes that they are given and return them."""

from dsvnp.plotting.everyday import plot_calibration, plot_functions, plot_predictive, plot_residuals

__all__ = ["plot_calibration", "plot_functions", "plot_predictive", "plot_residuals"]
