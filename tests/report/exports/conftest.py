"""Exports of two plans, as files that were read again."""

import pytest
import yaml

from capplan.report.exports import exported
from tests.report.exports.plans import one_pool, two_pools, written


@pytest.fixture
def documents(tmp_path):
    """Export a plan; return the YAML documents of all its files."""

    def run(target, document=None, **given):
        path = written(one_pool() if document is None else document, tmp_path)
        texts, _ = exported(path, target, **given)
        return [each for text in texts.values() for each in yaml.safe_load_all(text)]

    return run


@pytest.fixture
def apart():
    """Return the plan with two pools."""
    return two_pools()
