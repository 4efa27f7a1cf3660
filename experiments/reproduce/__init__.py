"""What `ens10 reproduce` would take: `--plan` says bytes, hours and memory of each cell."""
