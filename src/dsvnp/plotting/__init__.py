"""Figures in the house style."""
