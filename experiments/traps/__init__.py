"""What each trap of the authors' protocol does to the scores, on small synthetic worlds.

    python -m ens10.experiments.traps WORK --out experiments/results/traps

A trap alone is put into the clean protocol: a copy of `clean` with one rule of `paper`. The same
network, from the same initial weights, is trained by either. What the trapped protocol reports is
its own score on the test years; what the forecast is worth is the clean score on two years that no
protocol has looked at. `worlds` says how large the worlds are, `cells` trains and scores,
`unfitted` measures what needs no training, `table` and `figure` make the page's parts.
"""
