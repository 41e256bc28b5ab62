"""Deployment on real clients with Flower: `Deployment` makes a ServerApp and a ClientApp of any method.

Only `fedkeel.flower.adapter` imports Flower, and only when an app is made: `pip install "fedkeel[flower]"`.
"""

from fedkeel.flower.deployment import Deployment, Node

__all__ = ["Deployment", "Node"]
