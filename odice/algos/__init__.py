"""Algorithms: one file each, with its equations, its config and its three functions. What a family of algorithms shares
is a module too, called its frame (`implicit_q`, `inverse_q`, `semi_dice`, `td3`, `union`)."""

from odice.algos.registry import Entry, algorithms, entry, make, register

__all__ = ["Entry", "algorithms", "entry", "make", "register"]
