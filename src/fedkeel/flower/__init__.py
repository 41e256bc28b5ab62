"""Deployment on real clients with Flower: `Deployment` holds any method's task and data, two apps run it.

Only `fedkeel.flower.adapter` imports Flower, and only when an app is made: `pip install "fedkeel[flower]"`.
"""

from fedkeel.flower.apps import client_app, server_app
from fedkeel.flower.deployment import Deployment, Node

__all__ = ["Deployment", "Node", "client_app", "server_app"]
