"""Reference schemas that are not shipped: a test skips where they are not there.

They lie beside the checkout, or where ``CAPPLAN_EXPORT_SCHEMAS`` says.
"""

import gzip
import json
import os
from functools import cache
from pathlib import Path

import pytest
import yaml

_FOLDER = Path(__file__).parents[4] / "shared/data/exports/crds"


def _text(name):
    folder = Path(os.environ.get("CAPPLAN_EXPORT_SCHEMAS", _FOLDER))
    path = folder / f"{name}.gz"
    if not path.exists():
        pytest.skip(f"the reference schema {name} is not here ({folder})")
    return gzip.decompress(path.read_bytes()).decode()


@cache
def crd_schema(name, version):
    """Return the schema of a custom resource, which accepts no unknown key."""
    text = _text(f"{name}.yaml")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents = [each for each in yaml.load_all(text, loader) if each]
    (versions,) = [each["spec"]["versions"] for each in documents]
    (found,) = [each for each in versions if each["name"] == version]
    return _closed(found["schema"]["openAPIV3Schema"], top=True)


@cache
def json_schema(name):
    """Return a JSON schema as it was published."""
    return json.loads(_text(f"{name}.schema.json"))


def _closed(schema, top=False):
    """Return a structural schema as Kubernetes reads it, in the words of JSON Schema.

    Unknown keys are refused, as ``kubectl apply --validate=strict`` does.
    """
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    found = {
        key: {name: _closed(each) for name, each in value.items()}
        if key == "properties"
        else _closed(value)
        for key, value in schema.items()
        if not key.startswith("x-kubernetes-") and key != "format"
    }
    is_open = schema.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in schema and not is_open and "additionalProperties" not in schema:
        found["additionalProperties"] = False
    if top:
        found["properties"]["metadata"] = {"type": "object"}
    return found


def errors(schema, document):
    """Return what a schema says against a document."""
    validator = pytest.importorskip("jsonschema")
    found = validator.Draft7Validator(schema).iter_errors(document)
    return [f"{each.json_path}: {each.message}" for each in found]


def broken_rules(spec):
    """Return which rules of an LLMInferenceService a specification breaks.

    Its definition (kserve aaac4e294) states them in CEL, which no JSON schema checks.
    """
    broken = []
    for where, part in (("spec", spec), ("spec.prefill", spec.get("prefill", {}))):
        scaling = part.get("scaling")
        if scaling is None:
            continue
        if "replicas" in part:
            broken.append(f"{where}: replicas and scaling are mutually exclusive")
        if ("wva" in scaling) == ("keda" in scaling):
            broken.append(f"{where}.scaling: expected one of wva and keda")
        if "keda" in scaling and not scaling["keda"].get("triggers"):
            broken.append(f"{where}.scaling.keda: expected at least one trigger")
        if scaling.get("minReplicas", 0) > scaling["maxReplicas"]:
            broken.append(f"{where}.scaling: minReplicas cannot exceed maxReplicas")
    return broken
