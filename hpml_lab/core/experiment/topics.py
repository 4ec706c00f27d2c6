"""Finds the topics: registries fill themselves when a topic's modules are imported."""

import functools
import importlib
import importlib.util
import pkgutil

import hpml_lab
from hpml_lab.core.system.attempt import error_message_of


@functools.cache
def import_topics(part: str) -> dict[str, str]:
    """Import every module of `hpml_lab.<topic>.<part>` ("experiments" or "exercises"), of every topic that has it.

    Returns {topic: why} for the topics that do not load here; they do not keep the others from loading.
    """
    failed = {}
    for topic in pkgutil.iter_modules(hpml_lab.__path__):
        package = f"hpml_lab.{topic.name}.{part}"
        try:
            if not topic.ispkg or importlib.util.find_spec(package) is None:
                continue
            module = importlib.import_module(package)
            for inner in pkgutil.iter_modules(getattr(module, "__path__", [])):
                importlib.import_module(f"{package}.{inner.name}")
        except Exception as error:  # a broken installation fails in many ways
            failed[topic.name] = error_message_of(error)
    return failed
