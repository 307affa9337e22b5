"""The value of a policy: episodes in a simulator, and estimates from logged data."""
