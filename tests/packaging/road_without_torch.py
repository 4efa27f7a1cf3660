"""The light road, run by the tests in an environment without torch: python FILE GRIB FOLDER."""

import contextlib
import io
import sys
from pathlib import Path

import numpy as np
import xarray as xr

import ens10
from ens10.cli import main
from ens10.loader import Batches
from ens10.metrics import crps_ensemble, crps_normal
from ens10.synthetic import World


def expect(condition, what):
    """Like assert, also under -O."""
    if not condition:
        raise SystemExit(f"not true: {what}")


def command(*arguments):
    """Output of a command that must succeed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        expect(main([str(a) for a in arguments]) == 0, f"ens10 {arguments} succeeds")
    return out.getvalue()


def real_members(grib, folder):
    """A real GRIB file to a store."""
    store = ens10.prepare(grib, folder / "real")
    levels = ens10.open_store(store, "pl")
    expect(set(levels.data_vars) == {"z", "t"}, "the store has z and t")
    expect(levels.sizes["number"] == 10, "the store has ten members")
    expect(200 < float(levels.t.sel(level=500).mean()) < 280, "a temperature in kelvin")
    expect("500" in command("inspect", grib), "inspect lists the levels of a file")
    expect("z" in command("inspect", store), "inspect lists a store")


def world(folder):
    """A small world to batches."""
    made = World("8x16", range(2000, 2004), 3, ("t2m", "u10", "sst"), steps=(48,), members=3)
    made.write(folder / "world")
    store = ens10.prepare(folder / "world", folder / "made", truth=folder / "world" / "truth")
    batches = Batches(store, "t2m", members=True, batch_size=2, protocol="clean")
    count = 0
    for batch in batches:
        count += len(batch["dates"])
        expect(batch["members"].shape[1:] == (3, 8, 16), "members of the target")
        expect(np.isfinite(batch["features"]).all(), "no gaps in the features")
        scores = crps_ensemble(batch["members"], batch["target"], estimator="fair", member_dim=1)
        expect(np.isfinite(scores).all(), "finite scores")
    expect(count == len(batches.dates) > 0, "every training date comes once")


def scores():
    """Known values, on numpy and xarray."""
    unit = (np.sqrt(2) - 1) / np.sqrt(np.pi)
    expect(abs(crps_normal(0.0, 1.0, 0.0) - unit) < 1e-12, "the CRPS of a unit normal at its mean")
    members = xr.DataArray([[0.0, 2.0], [0.0, 4.0]], dims=("time", "number"))
    plain = crps_ensemble(
        members, xr.DataArray([1.0, 2.0], dims="time"), estimator="plain", member_dim="number"
    )
    expect(plain.values.tolist() == [0.5, 1.0], "the plain CRPS of two members")


def no_torch():
    """Nothing above imported torch, and a command that needs it says so."""
    expect("torch" not in sys.modules, "torch is not imported")
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError:
        pass
    else:
        raise SystemExit("torch is installed here")
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        status = main(["fit", "--config", "none.yaml"])
    expect(status == 1, "fit without torch fails")
    expect("pip install" in told.getvalue(), "fit without torch says how to install it")


if __name__ == "__main__":
    source, out = map(Path, sys.argv[1:])
    expect("ECMWF" in command("info"), "info says what ENS-10 is")
    real_members(source, out)
    world(out)
    scores()
    no_torch()
    print("done")
