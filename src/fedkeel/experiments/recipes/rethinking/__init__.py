"""Rethinking regularization in federated learning: its Tables 1–4 and Figures 1–13.

`settings` has what its Tables 5 and 6 print, `tables` and `figures_…` the recipes.
"""
