"""Studies of the paper and measurements of odice: toy world, theorems, tables, worlds, suite, benchmark, demo.

Only the command line imports this package.
"""
