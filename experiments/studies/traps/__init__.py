"""Effect of each trap of the authors' protocol on the scores, on small synthetic worlds.

    python -m ens10.experiments.studies.traps WORK --out experiments/results/traps

Each trap is one rule of the protocol `paper` in a copy of the protocol `clean`. The same network,
from the same initial weights, is trained under both. The trapped protocol reports its own score on
the test years; the true skill of the forecast is the clean score on two years that no protocol has
used. `cells` has the worlds, the protocols, their trainings and the scores of the raw ensemble;
`tables` makes the page's tables and its figure.
"""

RESULT_VERSION = 1  # raise it when results change
