"""The forecast of families other than the normal, which is at home with the other forecasts."""

from ens10.models.predictive.family import FamilyForecast

__all__ = ["FamilyForecast"]
