"""Studies of the paper and measurements of odice: toy world, theorems, tables, worlds, suite, benchmark, demo.

The other packages do not need this one.
"""
