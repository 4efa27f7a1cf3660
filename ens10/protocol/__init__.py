"""Which years train, validate and test a model, and what else a protocol fixes.

`paper` is the protocol of the ENS-10 authors, traps included; `clean` avoids the traps. Both are
YAML files (`experiments/protocols/`), and a file of one's own works wherever their names do.
"""

from ens10.protocol.files import content_of, protocol_names, protocol_of, reference_of
from ens10.protocol.rules import EfiRules, NormaliseOn, Protocol, Split, SplitBy, Years
from ens10.protocol.splits import Splits, split_dates

__all__ = [
    "EfiRules",
    "NormaliseOn",
    "Protocol",
    "Split",
    "SplitBy",
    "Splits",
    "Years",
    "content_of",
    "protocol_names",
    "protocol_of",
    "reference_of",
    "split_dates",
]
