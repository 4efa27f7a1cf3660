"""One year of ENS-10's true size through every station, with the time and memory of each.

python -m ens10.experiments.full_size WORK --out experiments/results/full_size
"""
