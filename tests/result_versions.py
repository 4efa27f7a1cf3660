"""Compare the code of each `RESULT_VERSION` with the code that the number was stamped for.

    python tests/result_versions.py
    python tests/result_versions.py --numbers-unchanged ens10.models
    python tests/result_versions.py --numbers-unchanged all

The first stamps areas whose number was raised, the others areas whose results are the same. An area
is a module or package that declares the number: the modules below it that declare none of their
own. Comments, docstrings and layout do not count. A network's area also holds the modules of its
package that it imports.
"""

import argparse
import ast
import hashlib
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STAMPS = Path(__file__).with_suffix(".json")
FOLDERS = {
    "ens10": "ens10", "metrics": "ens10.metrics", "models": "ens10.models",
    "experiments": "ens10.experiments",
}  # fmt: skip
# Code outside a package that its results depend on, and code inside that they do not depend on.
ALSO = {
    "ens10.loader": ("ens10.protocol", "ens10.grid", "ens10.channels", "ens10.climate"),
    "ens10.experiments.runner": (
        "ens10.experiments.runs.predictions", "ens10.experiments.scoring.score",
        "ens10.experiments.runner.sizes",
    ),
    "ens10.experiments.studies.experts": ("ens10.experiments.studies.short_training",),
    "ens10.experiments.studies.gates": ("ens10.experiments.studies.short_training",),
    "ens10.experiments.studies.traps": ("ens10.experiments.studies.short_training",),
}  # fmt: skip
NOT = (
    "ens10.metrics.figures", "ens10.models.parallel", "ens10.experiments.runs.claims",
    "ens10.experiments.runner.results", "ens10.experiments.runner.running",
    "ens10.experiments.runner.tables",
)  # fmt: skip


def modules(root=ROOT):
    """The parsed modules by name; a package has the name of its folder."""
    found = {}
    for folder, package in FOLDERS.items():
        for path in sorted((root / folder).rglob("*.py")):
            parts = path.relative_to(root / folder).with_suffix("").parts
            name = ".".join([package, *(p for p in parts if p != "__init__")])
            if folder != "ens10" or parts[0] not in FOLDERS:  # symbolic links
                found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def declared(trees):
    """The number of each module that declares one."""
    return {
        name: node.value.value
        for name, tree in trees.items()
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "RESULT_VERSION"
    }


def outline(node):
    """What code does, in a form that is the same for all versions of Python."""
    if isinstance(node, list):
        return [outline(one) for one in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: value for name, value in ast.iter_fields(node) if value not in (None, [])}
    for name in ("kind", "type_comment", "type_params", "ctx"):
        fields.pop(name, None)
    body = fields.get("body")
    if isinstance(body, list) and isinstance(body[0], ast.Expr):
        text = isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str)
        fields["body"] = body[1:] if text else body
    return [type(node).__name__, *([name, outline(value)] for name, value in fields.items())]


def area_of(name, trees, numbers):
    """The modules of an area."""

    def owner(module):
        while module not in numbers and "." in module:
            module = module.rpartition(".")[0]
        return module

    held = {module for module in trees if owner(module) == name}
    if not any(module.startswith(f"{name}.") for module in trees):  # no package
        package = name.rpartition(".")[0]
        imported = {n.module for n in ast.walk(trees[name]) if isinstance(n, ast.ImportFrom)}
        held |= {module for module in imported & set(trees) if module.startswith(f"{package}.")}
    held |= {module for module in trees if module in ALSO.get(name, ())}
    return sorted(m for m in held if not m.startswith(NOT))


def stamps_now(root=ROOT):
    """Number and digest of each area as the code is."""
    trees = modules(root)
    numbers = declared(trees)
    found = {}
    for name in sorted(numbers):
        code = [[m, outline(trees[m])] for m in area_of(name, trees, numbers)]
        digest = hashlib.sha256(json.dumps(code).encode()).hexdigest()[:12]
        found[name] = {"version": numbers[name], "digest": digest}
    return found


def changed(stamped, now):
    """Areas whose code is another under the same number, and areas with another number."""
    names = sorted({*stamped, *now})
    same = [n for n in names if n in stamped and n in now]
    code = [n for n in same if stamped[n] != now[n] and stamped[n]["version"] == now[n]["version"]]
    return code, [n for n in names if stamped.get(n) != now.get(n) and n not in code]


def main(arguments=None):
    """Write the stamps; exit status 1 if areas are left that need a decision."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--numbers-unchanged", nargs="+", default=[], metavar="AREA")
    asked = parser.parse_args(arguments).numbers_unchanged
    stamped, now = json.loads(STAMPS.read_text()) if STAMPS.exists() else {}, stamps_now()
    code, numbers = changed(stamped, now)
    left = [name for name in code if name not in asked and asked != ["all"]]
    kept = {name: stamped[name] if name in left else now[name] for name in now}
    STAMPS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    for name in [*numbers, *(n for n in code if n not in left)]:
        print(f"stamped {name}")
    for name in left:
        print(f"{name}: its code changed. Raise its RESULT_VERSION, or give --numbers-unchanged")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
