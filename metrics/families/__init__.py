"""Distributions in closed form: CRPS, cdf and log density, with gradients written out.

A family is one file. Its formulas are written once, on an `Ops` (numpy and scipy, or torch), and
`Formula` makes of them a function for arrays of any library.
"""
