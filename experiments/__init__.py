"""Experiments: which model on which data gives which table."""

if __name__ == "experiments":  # the bare name: two copies of every class would follow
    raise ImportError("import this package as ens10.experiments, not as experiments")
