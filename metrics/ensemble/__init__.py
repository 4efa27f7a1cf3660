"""Ensemble CRPS: compiled kernels, tensors with gradients, member weights, missing members."""
