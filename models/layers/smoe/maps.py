"""Maps from configurations: weights of a fixed gate, and area weights of the points in the loss."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from ens10.errors import ArgumentError, UnknownNameError
from ens10.grid import Weighting, area_weights

Nested = Sequence[Sequence[Sequence[float]]]


def read_map(path: str | Path) -> Tensor:
    """Read the one array of a .npy, .npz or netCDF file.

    Raises:
        ArgumentError: no such file, another kind of file, or not exactly one array in it.
    """
    path = Path(path)
    if not path.is_file():
        raise ArgumentError("weights", f"there is no file {path}")
    if path.suffix == ".npy":
        return torch.from_numpy(np.load(path, allow_pickle=False))
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    elif path.suffix in (".nc", ".nc4"):
        import xarray as xr

        with xr.open_dataset(path) as dataset:
            arrays = {str(name): dataset[name].to_numpy() for name in dataset.data_vars}
    else:
        raise ArgumentError("weights", f"{path} does not end in .npy, .npz or .nc")
    if len(arrays) != 1:
        raise ArgumentError(
            "weights", f"{path} holds {len(arrays)} arrays ({', '.join(arrays)}), must be one"
        )
    return torch.from_numpy(next(iter(arrays.values())))


def mean_one(area: Tensor | Sequence[float]) -> Tensor:
    """Return weights as (H, 1) or (H, W), normalised to mean 1.

    Raises:
        ArgumentError: another shape, or negative, NaN or no weights.
    """
    area = torch.as_tensor(area, dtype=torch.get_default_dtype())
    if area.ndim not in (1, 2) or not bool((area >= 0).all()) or not bool(area.sum() > 0):
        raise ArgumentError(
            "area", "must be (H,) or (H, W), not negative, not NaN and not all zero"
        )
    area = area[:, None] if area.ndim == 1 else area
    return area / area.mean()


def named_area(name: str, rows: int | None) -> Tensor | None:
    """Return row weights of a global grid whose first and last row are the poles.

    Args:
        name: "cell", "cos" or "none", see `ens10.grid.area_weights`.
        rows: number of rows of the gate's map, or None if it has none.

    Returns:
        (rows, 1) of mean 1, or None for "none".

    Raises:
        UnknownNameError: another name.
        ArgumentError: a gate without a map of its own.
    """
    if name not in get_args(Weighting):
        raise UnknownNameError("area", name, get_args(Weighting))
    if name == "none":
        return None
    if rows is None:
        raise ArgumentError(
            "area",
            f"{name!r} needs the rows of the grid, which this gate does not have",
            "Pass the weights of the rows, from ens10.grid.area_weights",
        )
    return mean_one(area_weights(np.linspace(90, -90, rows), name).tolist())  # type: ignore[call-overload]
