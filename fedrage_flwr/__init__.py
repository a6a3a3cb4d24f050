"""Federated learning under hidden, uneven client availability."""

__version__ = "0.1.0"
