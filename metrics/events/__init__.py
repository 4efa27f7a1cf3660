"""Scores of yes-or-no events and categories: Brier, RPS, ROC, value, reliability, fractions."""
