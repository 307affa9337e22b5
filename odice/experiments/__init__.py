"""The paper's own questions: its toy world, its theorems as measurements, and the demo."""
