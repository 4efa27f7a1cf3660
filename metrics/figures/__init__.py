"""Scores as figures that people look at: Datasets and DataArrays in, matplotlib figures out.

They need the extra `plot`. Nothing here knows of windows or global state: a figure is saved with
`figure.savefig(path)` and shown by a notebook as it is.
"""

from ens10.extras import telling_extras

with telling_extras("ens10.metrics.figures"):
    from ens10.metrics.figures.card import score_card
    from ens10.metrics.figures.diagrams import reliability_figure, roc_figure
    from ens10.metrics.figures.histograms import histogram_figure
    from ens10.metrics.figures.lines import latitude_figure, spread_error_figure
    from ens10.metrics.figures.maps import score_maps

__all__ = [
    "histogram_figure",
    "latitude_figure",
    "reliability_figure",
    "roc_figure",
    "score_card",
    "score_maps",
    "spread_error_figure",
]
