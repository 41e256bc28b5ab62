"""What defines a run and how it is executed: plain settings, each declared once."""
