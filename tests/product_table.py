"""The table of what `ens10 apply` writes: `python tests/product_table.py` puts it into the page."""

import re
from pathlib import Path

from ens10.experiments.forecasts.products import product_types
from ens10.options import flags_of

PAGE = Path(__file__).parents[1] / "docs" / "in_use.md"
BEGIN, END = "<!-- products -->", "<!-- end -->"
FIRST = (
    "`mu`, `sigma` of a normal; others by `forecast_kind`",
    "parameters of the distribution, as `ens10 predict` writes them",
    "",
)
LAST = ("`t2m`", "members of a model that generates them", "`--draws 100`")


def row_of(product):
    """Names of the variables, the first line of the docstring, and the option that asks for it."""
    names = ", ".join(f"`t2m_{suffix}`".replace("_`", "`") for suffix in product.variables)
    flag = next(iter(flags_of(product).values()), "")
    return names, product.__doc__.partition("\n")[0].rstrip("."), f"`{flag}`" if flag else ""


def table():
    """Return the table of the products."""
    head = ("variable (target `t2m`)", "what it is", "option")
    rows = [head, ("---",) * 3, FIRST, *map(row_of, product_types()), LAST]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def page_with_table(page):
    """Return the text of the page with the table of today's products."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n{table()}\n{END}", page)


if __name__ == "__main__":
    PAGE.write_text(page_with_table(PAGE.read_text()))
