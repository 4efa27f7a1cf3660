"""From what the caller gives as data to samples."""

from pathlib import Path

import xarray as xr

from ens10.errors import ArgumentError
from ens10.loader.samples import Samples


def open_samples(
    data: Path | str | xr.Dataset | Samples,
    target: str,
    truth: xr.Dataset | xr.DataArray | None = None,
    ensemble: int | None = None,
) -> Samples:
    """Samples of a store's path, or of any lazy dataset with its truth.

    Args:
        data: path of a store, a lazy dataset, or samples, which are given back as they are.
        target: channel, with `@step` if the truth has several steps.
        truth: of a lazy dataset.
        ensemble: members that make the ensemble; None for all.

    Raises:
        ArgumentError: a dataset without truth.
    """
    if isinstance(data, Samples):
        return data
    if isinstance(data, xr.Dataset):
        if truth is None:
            raise ArgumentError("truth", "a lazy dataset needs its truth beside it", "Give truth=")
        from ens10.loader.datasetsamples import DatasetSamples  # needs dask

        truth = truth.to_dataset() if isinstance(truth, xr.DataArray) else truth
        return DatasetSamples(data, truth, target, ensemble)
    if not isinstance(data, str | Path):
        raise ArgumentError("data", f"{type(data).__name__} is neither a path nor a Dataset")
    from ens10.loader.storesamples import StoreSamples  # needs zarr

    return StoreSamples(data, target, ensemble)
