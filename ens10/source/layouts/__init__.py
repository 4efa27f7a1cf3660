"""Layouts of datasets as producers publish them, one small file each.

A file defines a `Layout` and registers it; the registry finds the files of this folder, and
`ens10.source.layout.tidy` converts each dataset whose layout it recognises. A layout that differs
only in names is a table of names. To add one, copy such a file: nothing else has to be changed.
"""

from ens10.source.layouts.registry import (
    Layout,
    layout_of,
    register,
    registered_layouts,
    with_layout,
)

__all__ = ["Layout", "layout_of", "register", "registered_layouts", "with_layout"]
