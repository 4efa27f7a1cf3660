"""Write the lists of scores that mypy, completion and `--help` need: `python tests/score_lists.py`.

A public score is declared in its own module, by `__all__`; one of `ens10 score` by `METRICS`. This
command writes the lists of the packages and of the command line from there, and
`tests/metrics/test_scores_page.py` checks that they are current.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("calibration", "events", "extremes", "multivariate")


def declared(path):
    """The names of a module's `__all__`; none without it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return ast.literal_eval(node.value)
    return []


def text_of_package(path):
    """The text of a package's `__init__`; its docstring and its aliases (`x as x`) are kept."""
    old = path.read_text()
    modules = {one.stem: declared(one) for one in sorted(path.parent.glob("[a-z]*.py"))}
    package = f"ens10.metrics.{path.parent.name}"
    lines = [f"from {package}.{k} import {', '.join(v)}" for k, v in modules.items() if v]
    lines += [m.group() for m in re.finditer(r"^from \S+ import (\w+) as \1$", old, re.M)]
    public = sorted(name for names in modules.values() for name in names)
    return "\n".join(
        [f'"""{ast.get_docstring(ast.parse(old))}"""\n', *lines, f"\n__all__ = {public}\n"]
    )


def text_of_names(path):
    """The module with the names of the scores of `ens10 score`, numbers in capitals."""
    from ens10.metrics.scores.registry import METRICS, TABLES

    names = [k + (f"_{v.number.upper()}" if v.number else "") for k, v in METRICS.items()]
    text = path.read_text()
    return text[: text.index("SCORES = ")] + f"SCORES = {(*names, *TABLES)}\n"


def lists():
    """The text of each file with a list, by its path."""
    inits = [ROOT / "metrics" / name / "__init__.py" for name in PACKAGES]
    names = ROOT / "ens10" / "cli" / "score_names.py"
    return {path: text_of_package(path) for path in inits} | {names: text_of_names(names)}


if __name__ == "__main__":
    for path, text in lists().items():
        path.write_text(text)
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "-q", "--select", "I,RUF022", "--fix", *lists()], check=True)
    subprocess.run([*ruff, "format", "-q", *lists()], check=True)
