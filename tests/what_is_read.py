"""The tables of docs/data.md of what is read, made from the code: kinds, windows, units, layouts.

`python tests/what_is_read.py` writes them; `tests/test_what_is_read.py` compares them.
"""

import re
from pathlib import Path

from ens10.catalog import ACCUMULATED, RATES, VARIABLES
from ens10.grib.header import _DERIVED, _PROCESSES, _TEMPLATES, METHODS, PRODUCT_TYPES
from ens10.identity import FieldKind, Method
from ens10.source.layouts import registered_layouts
from ens10.source.units import _CONVERSIONS

PAGE = Path(__file__).parents[1] / "docs/data.md"
BEGIN, END = "<!-- made by tests/what_is_read.py -->", "<!-- end -->"

# What tells a kind in GRIB 2, where ecCodes has no type: keys of the product definition template
_KEYS = {
    FieldKind.MEMBER: "`perturbationNumber`",
    FieldKind.QUANTILE: "`percentileValue`, `quantileValue`",
    FieldKind.PROBABILITY: "`probabilityType`",
    FieldKind.DIFFERENCE: "a difference over time",
    FieldKind.DETERMINISTIC: "none of these",
}
_ARRAYS = {
    FieldKind.MEMBER: "a dimension of members",
    FieldKind.DETERMINISTIC: "no such dimension",
    FieldKind.MEAN: "`cell_methods` `realization: mean`",
    FieldKind.SPREAD: "`realization:` and another method",
    FieldKind.QUANTILE: "a dimension `quantile`, `quantile_level` or `percentile`",
    FieldKind.PROBABILITY: "a dimension of thresholds, or a standard name `probability_of_...`",
    FieldKind.PARAMETER: "written by ens10, without members",
}
_READ = {
    FieldKind.MEMBER: "yes",
    FieldKind.DETERMINISTIC: "of variables without members",
    FieldKind.OBSERVATION: "of variables without either",
}


def _table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def kinds():
    """Return the table of kinds of fields."""
    rows = []
    for kind in FieldKind:
        types = [name for name, of in PRODUCT_TYPES.items() if of == kind]
        derived = [str(code) for code, of in _DERIVED.items() if of == kind]
        keys = [_KEYS[kind]] if kind in _KEYS else []
        keys += [f"`derivedForecast` {', '.join(derived)}"] if derived else []
        for label, table in (("template", _TEMPLATES), ("`typeOfGeneratingProcess`", _PROCESSES)):
            codes = [str(code) for code, of in table.items() if of == kind]
            prefix = " 4." if label == "template" else " "
            keys += [label + ",".join(prefix + code for code in codes)] if codes else []
        read = _READ.get(kind, "left out")
        types_text = ", ".join(f"`{name}`" for name in types)
        rows.append([str(kind), read, types_text, "; ".join(keys), _ARRAYS.get(kind, "")])
    return _table(["kind", "read", "GRIB type", "GRIB 2 key", "netCDF, Zarr"], rows)


def windows():
    """Return the table of time windows."""
    meanings = {
        Method.POINT: "at one time; of precipitation, the sum since the start",
        Method.SUM: "precipitation: summed since the start",
        Method.MEAN: "rates of precipitation: times seconds, then summed since the start",
    }
    rows = []
    for method in Method:
        types = ", ".join(f"`{name}`" for name, of in METHODS.items() if of == method)
        rows.append([str(method), types, meanings.get(method, "a variable of its own, as it is")])
    return _table(["method", "GRIB `stepType`", "read as"], rows)


def units():
    """Return the table of units that are converted."""
    names = {}
    for variable in VARIABLES.values():
        names.setdefault(variable.units, []).append(variable.name)
    rows = []
    for unit, variables in names.items():
        others = ", ".join(f"`{other}`" for other in _CONVERSIONS.get(unit, {}))
        if set(ACCUMULATED) & set(variables):
            others += "; rates of these for " + ", ".join(f"`{name}`" for name in RATES)
        rows.append([f"`{unit}`", ", ".join(f"`{name}`" for name in variables), others])
    return _table(["unit in a store", "variables", "converted from"], rows)


def layouts():
    """Return the table of layouts."""
    rows = [[one.name, one.special] for one in registered_layouts()]
    return _table(["layout", "what is particular"], rows)


def tables():
    """Return all tables, with their titles."""
    titles = {"Kinds": kinds, "Time windows": windows, "Units": units, "Layouts": layouts}
    return "\n\n".join(f"**{title}**\n\n{make()}" for title, make in titles.items())


def page_with_tables(page):
    """Return the text of the page with the tables of today's code."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n\n{tables()}\n\n{END}", page)


if __name__ == "__main__":
    PAGE.write_text(page_with_tables(PAGE.read_text()))
