"""What a policy earns in a simulator: episodes stepped together, their returns, and a video of one."""
