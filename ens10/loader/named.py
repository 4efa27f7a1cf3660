"""The kinds of batches by their names."""

from typing import get_args

from ens10.errors import UnknownNameError
from ens10.loader.content import Features
from ens10.loader.kinds import Fields, Kind, KindName, Slabs
from ens10.loader.patches import Patches
from ens10.loader.points import Points


def kind_of(kind: KindName | Kind) -> Kind:
    """A kind by its name, or itself.

    Raises:
        UnknownNameError: no such kind, or one of unknown features.
    """
    if not isinstance(kind, Kind):
        kinds: dict[str, Kind] = {
            "fields": Fields(),
            "members": Fields(features="members"),
            "slabs": Slabs(),
            "patches": Patches(),
            "points": Points(),
        }
        if kind not in kinds:
            raise UnknownNameError("kind", kind, get_args(KindName))
        return kinds[kind]
    if kind.features not in get_args(Features):
        raise UnknownNameError("features", kind.features, get_args(Features))
    return kind
