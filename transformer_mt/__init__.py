"""Train, evaluate and use neural machine translation models."""

__version__ = "0.1.0"
