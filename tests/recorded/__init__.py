"""What lines give, recorded. `python tests/recorded` writes it anew; tests/test_recorded.py holds it."""
