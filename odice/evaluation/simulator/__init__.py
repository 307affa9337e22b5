"""Episodes in a simulator: returns of a policy, and a video of one episode."""
