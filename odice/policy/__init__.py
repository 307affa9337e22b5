"""All that a deployment imports: a policy, its files, its model card, its export to ONNX. Acting needs numpy alone, the
files safetensors too."""

from odice.policy.policy import Policy, open_policy

__all__ = ["Policy", "open_policy"]
