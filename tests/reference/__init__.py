"""A slow NumPy reference of every federated method, written from the equations alone."""
