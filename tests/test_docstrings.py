"""The examples of docstrings are true: each is run, those on data one after the other."""

import doctest
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# In the order in which one makes what the next reads.
ON_DATA = [
    "ens10.synthetic.world:World",
    "ens10.convert.preparation:prepare",
    "ens10.convert.verification:verify",
    "ens10.store.opening:open_store",
    "ens10.loader",
    "ens10.metrics.verification.scoring:verify",
]
ALONE = [
    "ens10.catalog:variable",
    "ens10.catalog:month_days",
    "ens10.channels:resolve",
    "ens10.channels:split",
    "ens10.errors:printable",
    "ens10.grid:area_weights",
    "ens10.identity:level_in_name",
    "ens10.protocol:period",
    "ens10.stations:as_row",
    "ens10.protocol:protocol_of",
    "ens10.source.layouts.level_names:level_of_name",
    "ens10.source.layouts.registry:registered_layouts",
    "ens10.source.stores:dataset_of",
    "ens10.source.times:after_months",
    "ens10.source.units:unit_of",
    "ens10.packed16.layout:crc32c",
    "ens10.selection:date_places",
    "ens10.models.heads:ResidualNormalHead",
    "ens10.models.heads:TargetHeads",
    "ens10.models.heads:FamilyHead",
    "ens10.models.heads:MembersNormalHead",
    "ens10.models.random_fields:RandomFieldHead",
    "ens10.models.dressing:DressingHead",
    "ens10.models.networks.unet:UNet",
    "ens10.models.networks.mlp:MLP",
    "ens10.models.networks.member_context:MemberContext",
    "ens10.models.statistical.emos:EMOS",
    "ens10.models.statistical.fit_arrays:fit",
    "ens10.models.statistical.predictor_emos:RidgeEMOS",
    "ens10.models.statistical.regions:RegionalRegression",
    "ens10.models.layers.smoe.error_quantiles:lower_quantile",
    "ens10.models.statistical.coupling:ranks",
    "ens10.models.domain:Cut",
    "ens10.models.domain:parts_of",
    "ens10.models.layers.neighbourhood:NeighbourhoodAttention",
    "ens10.models.layers.padding:SameConv2d",
    "ens10.models.losses:CRPSLoss",
    "ens10.places:is_url",
    "ens10.selection:Selection.of",
    "ens10.untrusted:dataclass_of",
    "ens10.untrusted:is_inner",
    "ens10.experiments.runner.key:result_version",
    "ens10.metrics.distributions.mixture:NormalMixture",
    "ens10.metrics.distributions.normal:crps_normal",
    "ens10.metrics.distributions.normal:Normal",
    "ens10.metrics.crps:crps_ensemble",
    "ens10.metrics.calibration.histograms:rank_histogram",
    "ens10.metrics.calibration.intervals:interval_coverage",
    "ens10.metrics.calibration.intervals:interval_score",
    "ens10.metrics.calibration.pit:pit_normal",
    "ens10.metrics.calibration.quantiles:crps_quantiles",
    "ens10.metrics.calibration.quantiles:quantile_score",
    "ens10.metrics.calibration.spread_error:rmse",
    "ens10.metrics.calibration.spread_error:spread_error_ratio",
    "ens10.metrics.events.diagrams:roc_curve",
    "ens10.metrics.events.probabilities:exceedance_probability",
    "ens10.metrics.events.probabilities:brier_score",
    "ens10.metrics.events.probabilities:brier_ensemble",
    "ens10.metrics.events.probabilities:rps",
    "ens10.metrics.events.probabilities:logarithmic_score",
    "ens10.metrics.extremes.indices:efi",
    "ens10.metrics.extremes.indices:sot",
    "ens10.metrics.families:crps",
    "ens10.metrics.groups:latitude_bands",
    "ens10.metrics.multivariate.energy:energy_score",
    "ens10.metrics.multivariate.variogram:variogram_score",
    "ens10.metrics.verification.options:ScoringOptions",
    "ens10.metrics.weighted:twcrps_normal",
    "ens10.metrics.weighted:twcrps_ensemble",
    "ens10.metrics.states:mean_state",
    "ens10.metrics.uncertainty.discovery:benjamini_hochberg",
    "ens10.metrics.uncertainty.hac:diebold_mariano",
    "ens10.metrics.uncertainty.intervals:interval",
    "ens10.metrics.scores.contingency:contingency_scores",
    "ens10.metrics.scores.anomaly_correlation:anomaly_correlation",
    "ens10.models.postprocessor:PostProcessor",
    "ens10.models.layers.smoe",
]


def examples(name):
    """The examples of one docstring, of a module or of what one defines."""
    module, _, thing = name.partition(":")
    home = import_module(module)
    finder = doctest.DocTestFinder(recurse=False)
    (found,) = finder.find(attrgetter(thing)(home) if thing else home, name, module=home, globs={})
    assert found.examples, f"{name} has no examples"
    return found


def run(name):
    """What does not come out as written, as doctest tells it."""
    told = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(examples(name), out=told.append)
    assert not failed, "".join(told)


def test_all_examples_are_listed():
    folders = ("ens10", "metrics", "models", "experiments")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    holders = {path.resolve() for path in sources if ">>> " in path.read_text()}
    files = {
        Path(import_module(name.partition(":")[0]).__file__).resolve() for name in ON_DATA + ALONE
    }
    assert holders == files


@pytest.mark.parametrize("name", ALONE)
def test_an_example(name):
    run(name)


def test_the_examples_on_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ON_DATA:
        run(name)


def test_an_example_that_is_wrong_is_seen(monkeypatch):
    from ens10.metrics import crps_normal

    text = crps_normal.__doc__.replace("0.2337", "0.2338")
    monkeypatch.setattr(crps_normal, "__doc__", text)
    with pytest.raises(AssertionError, match=r"0\.2338\s+Got:\s+0\.2337"):
        run("ens10.metrics.distributions.normal:crps_normal")
