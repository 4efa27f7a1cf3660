"""Download the files of ENS-10 and the ERA5 truth; downloads resume and show sizes first."""

from ens10.download.api import download
from ens10.download.files import Report

__all__ = ["Report", "download"]
