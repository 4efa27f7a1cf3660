"""The lists of networks and layers that are made from the code.

`python tests/model_lists.py` writes `models/networks/__init__.py` and `models/layers/__init__.py`:
every public class of a module there that declares `splittable`, for completion and mypy. It also
writes the cards of all configurations (`tests/model_cards.py`).
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
# what is public besides
OTHERS = {
    "networks": {"base": ["Network"]},
    "layers": {
        "expert_layers": ["Experts"],
        "padding": ["upsample_twice"],
        "smoe": ["SMoE2d", "track_loss"],
    },
}


def declared(path):
    """Public classes of a module that declare `splittable`; not the layers beside networks."""
    layers = path.parent.name == "layers"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            if not layers and [ast.unparse(base) for base in node.bases] == ["nn.Module"]:
                continue
            names = {getattr(part, "name", "") for part in node.body}  # a property
            for part in node.body:
                names |= {ast.unparse(t) for t in getattr(part, "targets", ())}
            if "splittable" in names:
                yield node.name


def exports(package):
    """The text of a package's `__init__.py`, with the docstring that it has."""
    folder = ROOT / "models" / package
    homes = {name: list(names) for name, names in OTHERS[package].items()}
    for path in sorted(folder.glob("*.py")):
        if path.stem != "__init__" and (names := list(declared(path))):
            homes.setdefault(path.stem, []).extend(names)
    document = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()), clean=False)
    lines = [f'"""{document}"""', ""]
    for module, names in sorted(homes.items()):
        lines.append(f"from ens10.models.{package}.{module} import (")
        lines += [f"    {name}," for name in _in_order(names)]
        lines.append(")")
    everything = _in_order(name for names in homes.values() for name in names)
    lines += ["", "__all__ = [", *(f'    "{name}",' for name in everything), "]", ""]
    return _short("\n".join(lines))


def _in_order(names):
    """As ruff sorts: constants, classes, functions."""
    return sorted(names, key=lambda n: (not n.isupper(), n[0].islower(), n))


def _short(text):
    """Imports on one line where they fit."""

    def joined(found):
        line = f"{found[1]} {', '.join(re.findall(r'[A-Za-z0-9_]+', found[2]))}"
        return line if len(line) <= 100 else found[0]

    return re.sub(r"(from \S+ import) \(([^)]*)\)", joined, text)


def main():
    """Write all of them."""
    import model_cards

    for package in OTHERS:
        (ROOT / "models" / package / "__init__.py").write_text(exports(package), encoding="utf-8")
    model_cards.main()


if __name__ == "__main__":
    main()
