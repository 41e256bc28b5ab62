"""The contract of a method and its parts: task, work, gradients, and the one loop of local steps."""
