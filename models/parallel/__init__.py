"""One sample split between processes, so that the run equals the serial one to rounding."""

from ens10.models.parallel.exchange import Exchange, Link, ProcessGroupExchange, Traffic
from ens10.models.parallel.shard import Shard

__all__ = ["Exchange", "Link", "ProcessGroupExchange", "Shard", "Traffic"]
