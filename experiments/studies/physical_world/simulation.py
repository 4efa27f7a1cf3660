"""The atmospheric model: a worker process that simulates nature and its ensemble forecasts.

This file runs in an environment of its own, which holds `jcm` (SPEEDY physics on the dinosaur
spectral core, T31, 8 levels) and not ens10; nothing of ens10 imports it. The controlling process
writes one request as a line of JSON to standard input and reads one reply from standard output.
The worker ends when its standard input closes.

Nature is jcm as it is distributed, with another time step (2700 instead of 1800 s by default, for
both models). The forecast model is the same code with other values of
physical parameters and stronger diffusion, on the same orography. Both start one day before the
start date, from an analysis with random errors, so that errors and spread have grown with the flow
when the forecast begins:

    analysis = nature + e_0,    member k = analysis + e_k,    e_i ~ N(0, amplitude^2 C)

with C the sample covariance of nature's states of the preceding weeks. Nature is a draw from the
same distribution as the members, hence ensembles of the nature model ("perfect") are nearly
reliable: a little too wide, since nature lies on its attractor and the perturbed members do not.
"""

import dataclasses
import json
import os
import sys
import threading
import time
import warnings
from pathlib import Path

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["HF_HUB_OFFLINE"] = "1"  # boundary data come with the package
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OPENBLAS_CORETYPE"] = "Haswell"  # the same sums, hence weather, on all x86 processors
warnings.filterwarnings("ignore")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax_datetime as jdt  # noqa: E402
import jcm  # noqa: E402
import numpy as np  # noqa: E402
from jcm.date import DateData  # noqa: E402
from jcm.diffusion import DiffusionFilter  # noqa: E402
from jcm.dycore.dinosaur.dycore import DinosaurDycore  # noqa: E402
from jcm.forcing import ForcingData  # noqa: E402
from jcm.model import Model  # noqa: E402
from jcm.physics.speedy.params import Parameters  # noqa: E402
from jcm.physics.speedy.speedy_coords import get_speedy_coords  # noqa: E402
from jcm.physics.speedy.speedy_terms import speedy_physics  # noqa: E402
from jcm.terrain import TerrainData  # noqa: E402

DAY = 86400
CLIMATE = Path(jcm.__file__).parent / "data/bc/t30/clim"
COORDINATES = get_speedy_coords()
WINDOW = 35  # days of nature's past that the analysis errors are drawn from
GAP = 5  # days between the last of them and the analysis
GRAVITY = 9.80665


def forecast_parameters(changes, strength):
    """Return nature's parameters moved by the fraction `strength` towards those of a variant.

    Args:
        changes: value at a strength of 1 by scheme and parameter; see `production.CHANGES`.
        strength: 0 for nature.
    """
    default = Parameters.default()
    schemes = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    for scheme, values in changes.items():
        old = schemes[scheme]
        new = {
            name: jnp.asarray(
                float(getattr(old, name)) + strength * (value - float(getattr(old, name)))
            )
            for name, value in values.items()
        }
        schemes[scheme] = dataclasses.replace(old, **new)
    return Parameters(**schemes)


class Simulator:
    """One model, compiled to advance by a day.

    Args:
        settings: `time_step` (s), `changes` and `model_error` (see `forecast_parameters`), and
            `diffusion` (factor of the diffusion's times).
        perturbed: build the forecast model, not nature.
    """

    def __init__(self, settings, perturbed):
        terrain = TerrainData.from_file(CLIMATE / "terrain.nc", coords=COORDINATES)
        self._forcing = ForcingData.from_file(CLIMATE / "forcing.nc", coords=COORDINATES)
        parameters, diffusion = Parameters.default(), DiffusionFilter.default()
        if perturbed:
            parameters = forecast_parameters(settings["changes"], settings["model_error"])
            diffusion = diffusion.scaled(settings["diffusion"])
        self._step_seconds = int(settings["time_step"])
        core = DinosaurDycore(
            coords=COORDINATES,
            terrain=terrain,
            dt_seconds=float(self._step_seconds),
            diffusion=diffusion,
        )
        physics = speedy_physics(parameters, checkpoint_terms=False)
        self.model = Model(dycore=core, physics=physics, start_time="1990-01-01")
        grid = COORDINATES.horizontal
        orography = grid.to_nodal(grid.clip_wavenumbers(grid.to_modal(terrain.orog)))
        self.surface_geopotential = np.asarray(orography) * GRAVITY  # that the dynamics have
        self._compiled = jax.jit(self._day)

    def advance(self, state, carry, day):
        """Return state, carry and fields a day later; `day` counts from 1970."""
        # Python numbers and weak types would each compile the model again.
        return self._compiled(_strongly_typed(state), _strongly_typed(carry), jnp.int32(day))

    def _day(self, state, carry, day):
        step = self.model._get_op_split_step_fn(self._forcing)
        seconds = self._step_seconds

        def one(values, index):
            state, carry, rain = values
            clock = jdt.Datetime(jdt.Timedelta(days=day, seconds=index * seconds))
            state, carry = step(state, carry, DateData(clock, index, seconds))
            flux = carry["surface_exchange"].precipitation.reshape(rain.shape)
            return (state, carry, rain + flux * seconds), None

        rain = jnp.zeros(COORDINATES.horizontal.nodal_shape)
        steps = jnp.arange(DAY // seconds, dtype=jnp.int32)
        (state, carry, rain), _ = jax.lax.scan(one, (state, carry, rain), steps)
        return state, carry, self._fields(state, carry, rain)

    def _fields(self, state, carry, rain):
        """Return model-level fields (5, level, lon, lat) and surface fields (6, lon, lat)."""
        grid = self.model.dycore.to_physics_state(state)
        surface = carry["_surface_flux"]
        pressure = grid.normalized_surface_pressure * 1e5
        levels = jnp.stack(
            [grid.geopotential, grid.temperature, grid.u_wind, grid.v_wind, grid.specific_humidity]
        )
        flat = [surface.t0, surface.tskin, surface.u0, surface.v0]
        parts = [pressure, *flat, rain]
        return levels, jnp.stack([part.reshape(rain.shape) for part in parts])


class Worker:
    """Nature and the forecast model, which are compiled on first use.

    Args:
        settings: `members`, `lead_days`, `amplitude`, `spin_up` (days), `stream` (of the members'
            random numbers), and those of `Simulator`.
    """

    def __init__(self, settings):
        self._settings = settings
        self._models = {}

    def model(self, kind):
        """Return the simulator of "perfect" (nature) or "forecast"."""
        if kind not in self._models:
            self._models[kind] = Simulator(self._settings, kind == "forecast")
        return self._models[kind]

    def answer(self, request):
        """Advance nature past one start date and simulate the ensembles of that date.

        Args:
            request: `checkpoint` (path or None), `start_day` (days since 1970), `seed` (integers),
                `ensembles` ("forecast", "perfect"), and paths to write: `fields`, `next`.
        """
        nature = self.model("perfect")
        start, seed = request["start_day"], request["seed"]
        lead = self._settings["lead_days"]
        if request["checkpoint"] is None:
            state, carry = self._initial_state(seed)
            day, window = start - 1 - self._settings["spin_up"], []
        else:
            state, carry, day, window = self._load(request["checkpoint"])
        truth = []
        while day < start + lead:
            if day == start - 1:
                base = (state, carry, list(window))
            state, carry, fields = nature.advance(state, carry, day)
            day += 1
            window = [*window, _to_arrays(state)][-(WINDOW + GAP + lead + 1) :]
            if day >= start:
                truth.append(tuple(np.asarray(field) for field in fields))
        runs = {"nature": [truth]}
        for kind in request["ensembles"]:
            runs[kind] = self._ensemble(kind, base, start - 1, seed)
        self._save_fields(request["fields"], runs)
        self._save(request["next"], carry, day, window)

    def _initial_state(self, seed):
        nature = self.model("perfect")
        state, carry = nature.model.initial_state(), nature.model.initial_physics_carry()
        noise = np.random.default_rng([*seed, 0]).normal(size=state.vorticity.shape)
        mask = COORDINATES.horizontal.mask
        noise = jnp.asarray(1e-6 * noise * mask, jnp.float32)  # 1/s, a tenth of a typical value
        noise = noise.at[:, 0, 0].set(0.0)  # vorticity has no global mean
        return state.replace(vorticity=state.vorticity + noise), carry

    def _ensemble(self, kind, base, day, seed):
        """Return the fields of each member at each lead time, from one day before the start."""
        state, carry, window = base
        past = window[-(WINDOW + GAP) : -GAP]
        leaves, tree = jax.tree_util.tree_flatten(state)
        anomalies = [np.stack(parts) - np.mean(parts, axis=0) for parts in zip(*past, strict=True)]
        scale = self._settings["amplitude"] / np.sqrt(len(past) - 1)

        def error(rng):
            weights = scale * rng.standard_normal(len(past)).astype(np.float32)
            return [np.tensordot(weights, part, 1) for part in anomalies]

        rng, runs = np.random.default_rng([*seed, 1]), []
        analysis = error(rng)
        if self._settings["stream"] > 1:  # another ensemble of the same analysis
            rng = np.random.default_rng([*seed, self._settings["stream"]])
        for _ in range(self._settings["members"]):
            member_error, fields = error(rng), []
            parts = [
                jnp.asarray(leaf + a + e, jnp.float32) if np.ndim(leaf) else leaf
                for leaf, a, e in zip(leaves, analysis, member_error, strict=True)
            ]
            x, c = jax.tree_util.tree_unflatten(tree, parts), carry
            for ahead in range(self._settings["lead_days"] + 1):
                x, c, out = self.model(kind).advance(x, c, day + ahead)
                fields.append(tuple(np.asarray(field) for field in out))
            runs.append(fields)
        return runs

    def _save_fields(self, path, runs):
        arrays = {
            f"{kind}_{part}": np.stack([[fields[n] for fields in run] for run in members])
            for kind, members in runs.items()
            for n, part in enumerate(("levels", "surface"))
        }
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise FloatingPointError("the model became unstable: fields are not finite")
        sine = COORDINATES.horizontal.nodal_axes[1]
        arrays["latitude"] = np.degrees(np.arcsin(np.asarray(sine, np.float64)))
        arrays["sigma"] = np.asarray(COORDINATES.vertical.centers, np.float64)
        arrays["sigma_edges"] = np.asarray(COORDINATES.vertical.boundaries, np.float64)
        arrays["surface_geopotential"] = self.model("perfect").surface_geopotential
        _write(path, arrays)

    def _save(self, path, carry, day, window):
        arrays = {f"state{n}": np.stack(part) for n, part in enumerate(zip(*window, strict=True))}
        leaves = jax.tree_util.tree_leaves(carry)
        arrays.update({f"carry{n}": np.asarray(leaf) for n, leaf in enumerate(leaves)})
        _write(path, {**arrays, "day": np.asarray(day)})

    def _load(self, path):
        nature = self.model("perfect").model
        state, carry = nature.initial_state(), nature.initial_physics_carry()
        with np.load(path) as file:
            states = jax.tree_util.tree_structure(state)
            stacks = [file[f"state{n}"] for n in range(states.num_leaves)]
            carries, tree = jax.tree_util.tree_flatten(carry)
            parts = [jnp.asarray(file[f"carry{n}"]) for n in range(len(carries))]
            day = int(file["day"])
        window = [list(parts_of_day) for parts_of_day in zip(*stacks, strict=True)]
        last = [jnp.asarray(part) for part in window[-1]]
        rebuilt = jax.tree_util.tree_unflatten(states, last)
        return rebuilt, jax.tree_util.tree_unflatten(tree, parts), day, window


def _strongly_typed(tree):
    def array(leaf):
        leaf = jnp.asarray(leaf)
        return jax.lax.convert_element_type(leaf, leaf.dtype)

    return jax.tree_util.tree_map(array, tree)


def _to_arrays(state):
    return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(state)]


def _write(path, arrays):
    with Path(path).open("wb") as file:
        np.savez(file, **arrays)


def _end_with_parent():
    """End soon after the controlling process: a long request would keep the worker alive."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main():
    """Answer requests until standard input closes; other output goes to standard error."""
    _end_with_parent()
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    settings = json.loads(sys.argv[1])
    if settings.get("cache"):
        jax.config.update("jax_compilation_cache_dir", settings["cache"])
    worker = Worker(settings)
    for line in sys.stdin:
        try:
            worker.answer(json.loads(line))
            replies.write(json.dumps({"error": None}) + "\n")
        except (FloatingPointError, OSError, ValueError) as error:
            replies.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")


if __name__ == "__main__":
    main()
