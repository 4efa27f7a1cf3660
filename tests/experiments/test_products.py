"""Every product of `ens10 apply`, from the registry: its options, its row, what it declares."""

from dataclasses import fields

import numpy as np
import pytest
from product_table import PAGE, page_with_table

import ens10
from ens10.cli import main
from ens10.errors import ArgumentError, UnknownNameError
from ens10.experiments.forecasts.apply import apply
from ens10.experiments.forecasts.products import Products, product_types
from ens10.options import flags_of, words_of

# a value of the first option of each product that has none that can be told from its default
VALUES = {"quantiles": [0.9], "probabilities": [">280"], "members": "ecc"}


def wanted(product):
    """The options of one product, as a caller gives them."""
    name = fields(product)[0].name
    return {name: VALUES.get(name, True)}


def test_the_page_has_a_row_of_each():
    assert page_with_table(PAGE.read_text()) == PAGE.read_text()


def test_the_command_has_the_options_of_each_with_their_words(capsys):
    with pytest.raises(SystemExit):
        main(["apply", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for product in product_types():
        words, flags = words_of(product), flags_of(product)
        assert words.keys() >= {one.name for one in fields(product)}
        for name, flag in flags.items():
            assert f"{flag} " in shown
            assert words[name].split(". ")[0] in shown


@pytest.mark.parametrize("product", product_types(), ids=lambda product: product.__name__)
def test_each_writes_what_it_declares_and_nothing_else(product, runs, world, tmp_path):
    from ens10.source import open_source

    whole = open_source(world.folder)
    today = whole.isel(time=slice(0, 2)).load()
    model = ens10.load_model(runs["mlp"])
    plain, with_it = model(today), model(today, **wanted(product))
    names = {f"t2m_{suffix}".rstrip("_") for suffix in product.variables}
    new = set(map(str, with_it.data_vars)) - set(map(str, plain.data_vars))
    assert new
    assert new <= names
    for name in new:
        assert with_it[name].dims[0] == "time"
        assert with_it[name].attrs["long_name"]
        assert product.may_be_nan or np.isfinite(with_it[name]).all()
    if not product.in_grib:
        out = tmp_path / "out.grib"
        with pytest.raises(ArgumentError, match="GRIB has no such product"):
            apply([runs["mlp"]], today, out, **wanted(product))
        assert not list(tmp_path.iterdir())


def test_another_option_is_refused_with_those_that_there_are():
    with pytest.raises(UnknownNameError, match=r"'quantile' is not known.*'quantiles'"):
        Products(quantile=[0.5])
