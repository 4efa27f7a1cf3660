"""Record the coefficients of every statistical method on a small world that is always the same.

    python tests/stored_coefficients.py

Writes tests/data/stored/coefficients.npz: an array `METHOD/BUFFER` for each buffer, in float64, and
`METHOD/crps`, the mean CRPS of the training dates with these coefficients. Do this only if a method
changes on purpose.
"""

from pathlib import Path

import numpy as np
import torch

FILE = Path(__file__).parent / "data" / "stored" / "coefficients.npz"
GRID, MEMBERS, YEARS, DATES = (3, 4), 4, range(2000, 2006), 16
AMOUNTS = ("amount_csgd", "amount_censored_gev", "amount_truncated_normal")


def fixed_batch(amounts=False):
    """All training dates, float64: values of few digits, which float32 holds exactly."""
    random = np.random.RandomState(0)  # its numbers are the same in every version of numpy
    days = np.arange(DATES) * 365 // DATES
    start = [np.datetime64(f"{year}-01-03") for year in YEARS]
    dates = np.array([first + day for first in start for day in days]).astype("datetime64[s]")
    count, shape = len(dates), (len(dates), *GRID)
    season = np.cos(2 * np.pi * np.tile(days, len(YEARS)) / 365).reshape(-1, 1, 1)
    wind = random.normal(size=(count, 3, *GRID))
    spread = np.exp(0.4 * random.normal(size=shape))
    middle = 280 + 8 * season + 3 * random.normal(size=shape)
    members = middle[:, None] + spread[:, None] * random.normal(size=(count, MEMBERS, *GRID))
    error = random.normal(size=GRID) * (1 + 0.5 * season) + 0.8 * wind[:, 0]
    noise = (0.8 + 0.6 * spread) * random.normal(size=shape)
    truth = 280 + 0.9 * (members.mean(1) - 280) + error + noise
    if amounts:
        members = np.maximum(0.5 * (members - 280), 0)
        truth = np.maximum(0.5 * (truth - 280) + 0.5, 0)
    members, truth, wind = (np.round(x * 64) / 64 for x in (members, truth, wind))
    area = np.cos(np.radians([60.0, 20.0, -40.0]))[:, None] * np.ones(shape)
    missing = random.uniform(size=shape) < 0.05
    missing[5:, 2, 3] = True  # a point with too few dates
    arrays = {
        "features": wind,
        "members": members,
        "raw_mean": members.mean(1),
        "raw_std": members.std(1, ddof=1),
        "target": truth,
        "weights": np.where(missing, 0, area),
        "dates": dates.astype(np.int64),
    }
    return {name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in arrays.items()}


def methods():
    """Each method by name, without coefficients."""
    from ens10.models import statistical as s

    ridge = s.RidgeEMOS(harmonics=1, criterion="crps", strength=30.0)
    advection = s.RidgeEMOS(harmonics=1, criterion="crps", strength=30.0, advection=True)
    latitude, longitude = [60.0, 20.0, -20.0], [0.0, 90.0, 180.0, 270.0]
    channels = ["u10:mean", "v10:mean", "t2m:std"]
    advection.advection.place(channels, "t2m", latitude, longitude)
    neighbours = s.RidgeEMOS(harmonics=1, criterion="crps", strength=30.0, neighbours=True)
    neighbours.advection.place(channels, "t2m", latitude, longitude)
    clusters = s.RegionalRegression(regions=2)
    anomalies = s.AnomalyEMOS()
    rows, columns = np.meshgrid(latitude, longitude, indexing="ij")
    anomalies.place(np.stack([rows, columns, np.full_like(rows, np.nan)]))
    return {
        "climatology": s.Climatology(),
        "seasonal_climatology": s.SeasonalClimatology(harmonics=1),
        "bias_map": s.BiasMap(harmonics=1),
        "emos_global": s.EMOS(),
        "emos_local": s.EMOS(local=True),
        "anomaly_emos": anomalies,
        "emos_likelihood": s.EMOS(local=True, criterion="likelihood"),
        "member_emos": s.MemberEMOS(),
        "seasonal_emos": s.SeasonalEMOS(harmonics=1),
        "seasonal_emos_logistic": s.SeasonalEMOS(1, "logistic", strength=30.0),
        "seasonal_emos_truncated": s.SeasonalEMOS(1, "truncated_normal", 270.0, strength=30.0),
        "seasonal_emos_censored": s.SeasonalEMOS(1, "censored_logistic", 275.0, strength=30.0),
        "ridge_emos": ridge,
        "ridge_emos_chosen": s.RidgeEMOS(harmonics=0, criterion="likelihood"),
        "ridge_emos_global": s.RidgeEMOS(local=False, strength=1.0),
        "ridge_emos_advection": advection,
        "ridge_emos_neighbours": neighbours,
        "boosted_emos": s.BoostedEMOS(steps=60),
        "boosted_emos_point": s.BoostedEMOS(criterion="crps", steps=40, stop="point"),
        "amount_csgd": s.AmountEMOS("csgd", threshold=0.1),
        "amount_censored_gev": s.AmountEMOS("censored_gev", threshold=0.1),
        "amount_truncated_normal": s.AmountEMOS("truncated_normal", threshold=0.1),
        "member_by_member": s.MemberByMember(),
        "member_by_member_fair": s.MemberByMember("fair"),
        "isotonic": s.IsotonicRegression(levels=5, nodes=6),
        "regional_regression": clusters,
        "ecc": s.ECC(s.EMOS(local=True)),
        "schaake": s.SchaakeShuffle(s.EMOS(local=True), members=4, history=20),
        "sliding_window": s.SlidingWindow(s.EMOS(local=True), days=400),
        "raw": s.Raw(),
        "raw_normal": s.RawNormal(),
    }


def fitted(name, method):
    """Return the buffers of a method after a fit, and the mean CRPS of its training dates."""
    batch = fixed_batch(name in AMOUNTS)
    method.double()
    for first in range(0, len(batch["dates"]), 40):  # in three batches
        method.collect({key: value[first : first + 40] for key, value in batch.items()})
    method.solve()
    values = {key: value.double().numpy() for key, value in method.state_dict().items()}
    with torch.no_grad():
        crps = method(batch).crps(batch["target"])
    where = (batch["weights"] > 0) & crps.isfinite()
    mean = (crps * batch["weights"])[where].sum() / batch["weights"][where].sum()
    return {**values, "crps": mean.double().numpy()}


def main():
    """Write the record."""
    torch.set_num_threads(1)
    arrays = {}
    for name, method in methods().items():
        arrays |= {f"{name}/{key}": value for key, value in fitted(name, method).items()}
        print(name, float(arrays[f"{name}/crps"]), flush=True)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(FILE, **arrays)
    print(f"{FILE}: {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
