"""CRPS that looks at a part of the outcomes: threshold- and outcome-weighted."""
