"""Statistical post-processing: methods that are fitted in closed form or by Newton's method."""

from ens10.models.statistical.advection import Advection, Neighbours
from ens10.models.statistical.amount_emos import AmountEMOS
from ens10.models.statistical.anomaly_emos import AnomalyEMOS
from ens10.models.statistical.base import StatisticalMethod
from ens10.models.statistical.bias import BiasMap
from ens10.models.statistical.climatology import Climatology, SeasonalClimatology
from ens10.models.statistical.coupling import ECC, SchaakeShuffle, couple
from ens10.models.statistical.emos import EMOS
from ens10.models.statistical.fit_arrays import FittedMethod, fit
from ens10.models.statistical.isotonic import IsotonicRegression
from ens10.models.statistical.member_by_member import MemberByMember
from ens10.models.statistical.member_emos import MemberEMOS
from ens10.models.statistical.predictor_emos import BoostedEMOS, RidgeEMOS
from ens10.models.statistical.raw import Raw, RawNormal
from ens10.models.statistical.regions import RegionalRegression
from ens10.models.statistical.seasonal_emos import SeasonalEMOS
from ens10.models.statistical.sliding_window import SlidingWindow

RESULT_VERSION = 1  # raise it when results change
__all__ = [
    "ECC",
    "EMOS",
    "Advection",
    "AmountEMOS",
    "AnomalyEMOS",
    "BiasMap",
    "BoostedEMOS",
    "Climatology",
    "FittedMethod",
    "IsotonicRegression",
    "MemberByMember",
    "MemberEMOS",
    "Neighbours",
    "Raw",
    "RawNormal",
    "RegionalRegression",
    "RidgeEMOS",
    "SchaakeShuffle",
    "SeasonalClimatology",
    "SeasonalEMOS",
    "SlidingWindow",
    "StatisticalMethod",
    "couple",
    "fit",
]
