"""What each trap of the authors' protocol does to the scores, on small synthetic worlds.

    python -m ens10.experiments.studies.traps WORK --out experiments/results/traps

A trap alone is put into the clean protocol: a copy of `clean` with one rule of `paper`. The same
network, from the same initial weights, is trained by either. What the trapped protocol reports is
its own score on the test years; what the forecast is worth is the clean score on two years that no
protocol has used. `training` has the worlds and protocols, trains and scores, `raw_ensemble`
measures what needs no training, `tables` makes the page's tables and its figure.
"""

RESULT_VERSION = 1  # raise it when results change
