"""How loops are compiled: interpreter lock released, kept on disk, numpy's rules for division."""

from typing import Any

OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}
