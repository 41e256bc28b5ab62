"""What `benchmarks/run.py` is made of: workloads, contenders that take turns, statistics, the report."""
