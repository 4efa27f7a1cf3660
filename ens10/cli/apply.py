"""Trained models in use: `ens10.load_model`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ens10.extras import telling_extras

if TYPE_CHECKING:
    from ens10.experiments.load import TrainedModel


def load_model(
    path: Path | str,
    *,
    device: str = "cpu",
    trust: Sequence[str] = (),
    history: Path | str | None = None,
) -> "TrainedModel":
    """Load a trained model as a function from forecasts to corrected forecasts.

    See `ens10.experiments.load.load_model`.
    """
    with telling_extras("ens10.load_model"):
        from ens10.experiments.load import load_model as load

        return load(path, device=device, trust=trust, history=history)
