"""Matplotlib figures of scores, from Datasets and DataArrays.

They need the extra `plot`. No window or global state of pyplot is used: save a figure with
`figure.savefig(path)`; a notebook displays it directly.
"""

from ens10.extras import telling_extras

with telling_extras("ens10.metrics.figures"):
    from ens10.metrics.figures.card import score_card
    from ens10.metrics.figures.diagrams import (
        histogram_figure,
        latitude_figure,
        reliability_figure,
        roc_figure,
        spread_error_figure,
    )
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
