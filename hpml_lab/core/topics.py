"""Finds the topics' furniture: registries fill themselves when a room's modules are imported."""

import importlib
import importlib.util
import pkgutil

import hpml_lab


def import_topics(furniture: str) -> None:
    """Import `hpml_lab.<topic>.<furniture>` ("experiments" or "exercises") of every topic that has it."""
    for topic in pkgutil.iter_modules(hpml_lab.__path__, "hpml_lab."):
        if topic.ispkg and importlib.util.find_spec(f"{topic.name}.{furniture}"):
            importlib.import_module(f"{topic.name}.{furniture}")
