"""Registry of the layouts of producers, and the conversion of a dataset of one of them."""

import pkgutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module

import xarray as xr

import ens10.source.layouts as package
from ens10.source.names import Names


def _same(dataset: xr.Dataset) -> xr.Dataset:
    return dataset


def _never(dataset: xr.Dataset) -> bool:  # noqa: ARG001
    return False


@dataclass(frozen=True)
class Layout:
    """The layout in which a producer publishes its data.

    Attributes:
        name: the producer's name of the data.
        source: the producer's documentation, from which the names are.
        special: what differs from the layout of this package, in a line for the documentation.
        matches: returns True for a dataset of this layout, by names, dimensions and attributes
            alone, without reading values. By default no dataset matches, as for GRIB files, whose
            messages describe themselves.
        names: variables, coordinates and dimensions, theirs to ours. A name that the dataset lacks
            is ignored. A level in our name (`z_500`) is that level, in hPa.
        accumulation: windows of precipitation by its name in the file: "since start", "6 h" (the
            six hours that end at the valid time) or "previous step".
        reshape: a lazy conversion that names alone cannot express, applied before the renaming.
    """

    name: str
    source: str
    special: str
    matches: Callable[[xr.Dataset], bool] = _never
    names: Mapping[str, str] = field(default_factory=dict)
    accumulation: Mapping[str, str] = field(default_factory=dict)
    reshape: Callable[[xr.Dataset], xr.Dataset] = _same

    def convert(self, dataset: xr.Dataset, reserved: Collection[str] = ()) -> xr.Dataset:
        """Return a dataset of this layout with names that `tidy` recognises.

        Args:
            dataset: that `matches`; its values are not read.
            reserved: names that keep, because a mapping of the user contains them.
        """
        dataset = set_windows(self.reshape(dataset), self.accumulation)
        present = {str(name) for name in (*dataset.variables, *dataset.dims)}
        known = [name for name in self.names if name in present and name not in reserved]
        kept = present - set(known)  # whose names no other may get
        return dataset.rename(
            {name: self.names[name] for name in known if self.names[name] not in kept}
        )


def set_windows(dataset: xr.Dataset, windows: Mapping[str, str]) -> xr.Dataset:
    """Set the attribute `accumulation` of the variables that the dataset has."""
    fields = {
        name: dataset[name].assign_attrs(accumulation=window)
        for name, window in windows.items()
        if name in dataset.data_vars
    }
    return dataset.assign(fields)


_LAYOUTS: dict[str, Layout] = {}


def register(layout: Layout) -> Layout:
    """Register a layout by its name, in place of one with the same name."""
    _LAYOUTS[layout.name] = layout
    return layout


@cache
def _import_modules() -> None:
    for module in pkgutil.iter_modules(package.__path__):
        import_module(f"{package.__name__}.{module.name}")


def registered_layouts() -> tuple[Layout, ...]:
    """Return all layouts, sorted by name.

    Examples:
        >>> from ens10.source.layouts import registered_layouts
        >>> registered_layouts()[0].name
        'anemoi-datasets'
    """
    _import_modules()
    return tuple(sorted(_LAYOUTS.values(), key=lambda layout: layout.name.lower()))


def layout_of(dataset: xr.Dataset) -> Layout | None:
    """Return the layout of a dataset, as it was opened; None if it is none of the registered."""
    return next((layout for layout in registered_layouts() if layout.matches(dataset)), None)


def with_layout(dataset: xr.Dataset, names: Names) -> xr.Dataset:
    """Convert a dataset from its producer's layout to names that `tidy` recognises.

    Args:
        dataset: as it was opened; one of no registered layout is unchanged.
        names: mapping of the user, whose names are left as they are, and whose windows of
            precipitation replace those of the layout.
    """
    layout = layout_of(dataset)
    if layout is not None:
        dataset = layout.convert(dataset, {*names.variables, *names.truth, *names.dimensions})
    return set_windows(dataset, names.accumulation)
