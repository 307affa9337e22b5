"""The colors of methods in charts and figures."""

LIGHT = ("#0b62b8", "#c2500a", "#1a7f4b", "#a8327d", "#6b4fc9", "#8a6d00", "#0f7f8c", "#1d2530")
DARK = ("#6db1ff", "#ff9c5b", "#5fd39a", "#f28cc8", "#b3a1ff", "#e6c84f", "#58cfdd", "#f2f5f9")
"""On a white and on a dark page."""
COLORS = len(LIGHT)
