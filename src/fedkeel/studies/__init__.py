"""Studies: diagnostics that need runs of their own."""
