"""What a job is, and what all who run jobs have in common; who runs them: `pool` and `ray`."""
