"""Algorithms: one file each, with its equations, its config and its three functions; and the frames that several
share."""

from odice.algos.registry import Entry, algorithms, entry, make, register

__all__ = ["Entry", "algorithms", "entry", "make", "register"]
