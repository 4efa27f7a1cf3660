"""Scores that `verify` and `ens10 score` compute by name: one file adds a score.

Each module of this package holds `STATISTICS`, quantities of points whose weighted means are kept
as sums, and `METRICS`, pure functions of these means. `registry` collects them from all modules.
"""
