"""What directories hold: runs, and the kinds of studies that are made of runs."""
