"""A deployment on this machine: SuperLink, SuperNodes, their keys and certificates, from start to end."""
