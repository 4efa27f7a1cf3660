"""Scores of probabilistic forecasts: from a forecast and the truth to numbers."""

if __name__ == "metrics":  # the bare name: two copies of every class would follow
    raise ImportError("import this package as ens10.metrics, not as metrics")
