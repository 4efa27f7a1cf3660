"""A griffe extension: what the docstrings of ens10 lack to be pages.

Constants have no docstring and would be left out; and docstrings are written for terminals, where
`time [, step] [, level]` is no link and `u*` no emphasis.
"""

import re

import griffe

_OPTIONAL = re.compile(r"\[(?=, )")
_STAR = re.compile(r"(?<=\w)\*(?=[\s).,])")


class Docstrings(griffe.Extension):
    """Text for public constants; brackets and stars that are meant as such in all docstrings."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        """Called by griffe for every object that it has read."""
        if obj.docstring is not None:
            obj.docstring.value = _STAR.sub(r"\*", _OPTIONAL.sub(r"\[", obj.docstring.value))

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: object) -> None:
        """Gives each public assignment of a module a line of text; its value is shown beside it."""
        in_module = attr.parent is not None and attr.parent.is_module
        if attr.docstring is None and in_module and not attr.name.startswith("_"):
            allowed = str(attr.value).startswith("Literal")
            text = "Allowed values." if allowed else "Constant."
            attr.docstring = griffe.Docstring(text, parent=attr)
