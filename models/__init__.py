"""Post-processing models: from a batch to a predictive distribution."""

if __name__ == "models":  # the bare name: two copies of every class would follow
    raise ImportError("import this package as ens10.models, not as models")
