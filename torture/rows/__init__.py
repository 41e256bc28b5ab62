"""The rows of the torture table: a module each."""
