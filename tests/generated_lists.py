"""Write the lists of families that readers, mypy and completion need, from the registry.

    python tests/generated_lists.py

Run it after adding a family to metrics/distributions. It writes the imports and `__all__` of
metrics/__init__.py and the lists in docs/scores.md and docs/reference/metrics_crps.md.
"""

import inspect
import re
from importlib import import_module
from pathlib import Path

from ens10.metrics.distributions.registry import FAMILIES

ROOT = Path(__file__).parents[1]


def score_functions():
    """The functions `crps_KIND` of families by module, in the order of the modules."""
    modules = {}
    for kind, cls in FAMILIES.items():
        if hasattr(import_module(cls.__module__), f"crps_{kind}"):
            modules.setdefault(cls.__module__, []).append(f"crps_{kind}")
    return {module: sorted(modules[module]) for module in sorted(modules)}


def import_statement(module, names):
    """A statement in the form of the formatter."""
    line = f"from {module} import {', '.join(names)}\n"
    if len(line) <= 101:
        return line
    return f"from {module} import (\n{''.join(f'    {name},{chr(10)}' for name in names)})\n"


def with_imports(text, modules):
    """The text of a module with these names imported, statements sorted by module."""
    for module, names in modules.items():
        statement = re.compile(rf"from {re.escape(module)} import (\([^)]*\)|[^\n]*)\n")
        found = statement.search(text)
        if found:
            before = {name.strip() for name in found[1].strip("()").split(",")} - {""}
            names = sorted(before | set(names))
            text = statement.sub(import_statement(module, names), text)
            continue
        others = re.finditer(r"^from (\S+) import", text, re.M)
        following = next((m for m in others if m[1] > module), None)
        at = following.start() if following else text.index("\n\n", text.rindex("\nfrom ")) + 1
        text = text[:at] + import_statement(module, names) + text[at:]
    return text


def with_all(text, names):
    """The text of a module whose `__all__` has these names too, sorted as the linter wants."""
    block = re.search(r"__all__ = \[\n(.*?)\]\n", text, re.S)
    every = set(re.findall(r'"(\w+)"', block[1])) | set(names)
    ranks = sorted(every, key=lambda n: (0 if n.isupper() else 1 if n[0].isupper() else 2, n))
    lines = "".join(f'    "{name}",\n' for name in ranks)
    return text[: block.start()] + f"__all__ = [\n{lines}]\n" + text[block.end() :]


def with_block(text, name, lines):
    """A page with these lines between the comments that name the block."""
    first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, rest = text.split(first)
    return before + first + "".join(f"{line}\n" for line in lines) + last + rest.split(last)[1]


def family_rows():
    """The table of families."""
    yield from ("", "| family | function | head | tested against |", "|---|---|---|---|")
    for kind, cls in FAMILIES.items():
        public = hasattr(import_module(cls.__module__), f"crps_{kind}")
        call = f"crps_{kind}" if public else f'crps("{kind}", ...)'
        head = "yes" if cls.head_channels else "no"
        yield f"| {kind.replace('_', ' ')} | `{call}` | {head} | {cls.oracles} |"
    yield ""


def reference_lines():
    """The reference of the modules of families: their classes and functions."""
    yield ""
    for module, functions in score_functions().items():
        classes = [c for c in FAMILIES.values() if c.__module__ == module]
        classes.sort(key=lambda c: inspect.getsourcelines(c)[1])
        members = ", ".join([c.__name__ for c in classes] + functions)
        yield from (f"::: {module}", "    options:", f"      members: [{members}]", "")


def files():
    """The text of each file with lists, by path."""
    modules = score_functions()
    functions = [name for names in modules.values() for name in names]
    package, page, reference = (
        ROOT / name
        for name in ("metrics/__init__.py", "docs/scores.md", "docs/reference/metrics_crps.md")
    )
    return {
        package: with_all(with_imports(package.read_text(), modules), functions),
        page: with_block(page.read_text(), "families", family_rows()),
        reference: with_block(reference.read_text(), "families", reference_lines()),
    }


if __name__ == "__main__":
    for path, text in files().items():
        if path.read_text() != text:
            path.write_text(text)
            print(f"wrote {path.relative_to(ROOT)}")
