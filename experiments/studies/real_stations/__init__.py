"""Tables of real forecasts at stations, from a user's own copy of the data.

    python -m ens10.experiments.studies.real_stations frankfurt FOLDER OUT
    python -m ens10.experiments.studies.real_stations innsbruck FOLDER OUT
    python -m ens10.experiments.studies.real_stations euppbench FOLDER OUT

`files` reads the data, `methods` fits and scores, `tables` writes the results beside published
values (`experiments/published/stations.yaml`). The project carries none of these data.
"""
