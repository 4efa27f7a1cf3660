"""A world with real dynamics: reforecasts of an atmospheric model with model error.

    python -m venv ENV; ENV/bin/pip install -c constraints.txt jcm==3.0.0
    python -m ens10.experiments.studies.physical_world simulate WORK --environment ENV
    python -m ens10.experiments.studies.physical_world write WORK FOLDER
    python -m ens10.experiments.studies.physical_world evaluate WORK --out RESULTS

Nature is the SPEEDY model (Molteni 2003, doi:10.1007/s00382-002-0268-2) as the package `jcm`
computes it; the forecast model has other physical parameters. `simulation` runs in an environment
of its own, which has jcm and no ens10, in the versions of `constraints.txt`: with others the same
seed gives other results; `production` controls it, resumes, and keeps what it
computes with checksums; `fields` derives ENS-10's variables on its grid; `files` writes GRIB files
in ENS-10's layout; `evaluation` scores raw, corrected and perfect-model ensembles.
"""
