"""Spatial parallelism: samples split between processes, with a serial run's results to rounding."""

from ens10.models.parallel.exchange import Exchange, Link, ProcessGroupExchange, Traffic
from ens10.models.parallel.shard import Shard
from ens10.models.parallel.strategy import SpatialStrategy
from ens10.models.parallel.supported_modules import register_known as register_known  # former name
from ens10.models.parallel.supported_modules import register_supported, require_supported

__all__ = [
    "Exchange",
    "Link",
    "ProcessGroupExchange",
    "Shard",
    "SpatialStrategy",
    "Traffic",
    "register_supported",
    "require_supported",
]
