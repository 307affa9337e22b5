"""Environments: what a name stands for, and those that Gymnasium does not have as this library needs them."""
