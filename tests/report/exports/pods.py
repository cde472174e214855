"""Find what deployments have in common, wherever it stands."""

import copy

import pytest


def values_of(key, node):
    """Return all values of a key, in order."""
    found = []
    if isinstance(node, dict):
        for name, value in node.items():
            found += [value] if name == key else []
            found += values_of(key, value)
    elif isinstance(node, list):
        found += [x for each in node for x in values_of(key, each)]
    return found


def misspelt(node, key, wrong):
    """Return a copy in which one key has another name."""
    node = copy.deepcopy(node)
    waiting, done = [node], False
    while waiting and not done:
        each = waiting.pop(0)
        if isinstance(each, dict) and key in each:
            each[wrong] = each.pop(key)
            done = True
        parts = each.values() if isinstance(each, dict) else each
        waiting += [x for x in parts if isinstance(x, dict | list)]
    assert done
    return node


def validate_pods(*specs):
    """Validate specifications of pods by Kubernetes' own schema."""
    validator = pytest.importorskip("kubernetes_validate")
    for spec in specs:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "x"},
            "spec": spec,
        }
        validator.validate(pod, "1.37", strict=True)
