"""Experiments that explain the paper; not part of the installed package."""
