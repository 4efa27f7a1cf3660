"""Scores of runs, their results as rows, and tables of them."""
