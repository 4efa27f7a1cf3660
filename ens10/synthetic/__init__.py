"""Synthetic datasets in the layout of ENS-10: a world with a known optimum, and coded positions.

`World` writes ensemble forecasts and truth of a "pointwise" or a "displaced" kind; the best
possible correction is known in closed form. `write_coded` writes values that encode their own date,
step, member, channel, row and column.
"""

from ens10.synthetic.coded import coded_value, write_coded
from ens10.synthetic.world import World

__all__ = ["World", "coded_value", "write_coded"]
