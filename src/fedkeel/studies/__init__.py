"""Studies: what is made of many runs, and diagnostics that need runs of their own."""
