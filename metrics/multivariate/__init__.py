"""Scores of many values at once: energy score, variogram score, spectral CRPS."""
