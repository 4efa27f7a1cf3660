"""The real files of ENS-10 and the ERA5 truth, resumable, sizes first."""

from ens10.download.api import download
from ens10.download.files import Report

__all__ = ["Report", "download"]
