"""Metrics that engines write down, and what must hold of them."""

import gzip
import json

import numpy as np
import pytest

from capplan.errors import CapplanWarning, InputError
from capplan.workload.metrics import read_metrics
from capplan.workload.metrics.laws import check_laws, laws
from capplan.workload.metrics.lengths import Lengths, drawn, identified
from capplan.workload.metrics.windows import Observed, Window, spans, windows

AIPERF = """# AIPerf Server Metrics Export (CSV)
Endpoint,Type,Metric,Unit,avg,p99,engine,model_name,reason,Description
localhost:1,gauge,vllm:num_requests_running,requests,10.0321,15.0,0,kimi,,Running
localhost:1,gauge,vllm:num_requests_waiting,requests,0.5754,8.0,0,kimi,,Waiting
Endpoint,Type,Metric,Unit,total,rate,rate_std,engine,finished_reason,source,Description
localhost:1,counter,vllm:generation_tokens,tokens,531759.0,290.5313,193.8,0,,,Generated
localhost:1,counter,vllm:prompt_tokens,tokens,52098210.0,28464.3236,1,0,,,Prompts
localhost:1,counter,vllm:prompt_tokens_by_source,,49480561.0,27034.1476,1,0,,local_cache_hit,x
localhost:1,counter,vllm:prompt_tokens_by_source,,2617649.0,1430.1760,1,0,,local_compute,x
localhost:1,counter,vllm:request_success,requests,2.0,0.0011,1,0,abort,,Done
localhost:1,counter,vllm:request_success,requests,566.0,0.3092,1,0,stop,,Done
Endpoint,Type,Metric,Unit,count,sum,p99_estimate,engine,model_name,Description,buckets
localhost:1,histogram,vllm:request_inference_time_seconds,s,566,18363.0289,1,0,kimi,x,240=560;+Inf=566
localhost:1,histogram,vllm:request_queue_time_seconds,s,566,1218.8795,1,0,kimi,x,0.3=521;+Inf=566
localhost:1,histogram,vllm:request_prefill_time_seconds,s,566,960.9283,1,0,kimi,x,0.3=98;+Inf=566
localhost:1,histogram,vllm:time_to_first_token_seconds,s,569,2500.5446,1,0,kimi,x,0.5=14;+Inf=569
localhost:1,histogram,vllm:iteration_tokens_total,tokens,54176,52629969.0,1,0,kimi,x,8=16132;+Inf=54176
Endpoint,Metric,Key,Value,Description
localhost:1,vllm:cache_config_info,block_size,1,x
localhost:1,vllm:cache_config_info,num_gpu_blocks,3654257,x
"""
"""Figures of a public run: Kimi-K2.5 on MI355X, TP 4, 16 users (InferenceMAX_Rocm_Team
@598828615e, the unofficial set whose laws were checked)."""


def query_range(*series):
    """Return Prometheus' answer: of each series its labels and its values."""
    rows = [
        {
            "metric": {"instance": "a", **labels},
            "values": [[t, str(v)] for t, v in values],
        }
        for labels, values in series
    ]
    return json.dumps({"data": {"resultType": "matrix", "result": rows}})


def counted(values, **labels):
    name = {"__name__": "vllm:generation_tokens_total"}
    return name | labels, list(enumerate(values))


def only(path):
    (found,) = read_metrics(path)
    return found


def test_a_public_run_keeps_the_laws_as_they_were_worked_out(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(AIPERF)

    of = only(path)
    (span,) = spans(of)
    (window,), _ = windows(of, span, 600)
    found = laws(window)

    assert window.lasts_s == pytest.approx(1830.3, abs=0.1)
    assert found["running"] == pytest.approx(1.000, abs=5e-4)
    assert found["waiting"] == pytest.approx(1053 / 1219, abs=1e-3)
    assert found["prompt_by_source"] == found["iteration_tokens"] == 1
    assert found["front_end_s"] == pytest.approx(0.543, abs=1e-3)
    assert window.hit_rate == pytest.approx(0.950, abs=5e-4)
    assert of.kv_tokens == 3_654_257
    assert window.count("ended") == 566
    assert window.count("failed") == 2


def test_mixed_models_break_a_law_and_are_refused(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(AIPERF.replace("2617649.0", "9617649.0"))
    of = only(path)
    (window,), _ = windows(of, next(spans(of)), 600)

    with pytest.raises(InputError, match=r"prompt tokens by source .* is 1.13"):
        check_laws([window], "here")


def test_tokens_of_iterations_are_not_checked_of_several_front_ends(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(AIPERF.replace("52629969.0", "26000000.0"))
    of = only(path)
    found, _ = windows(of, next(spans(of)), 600)

    with pytest.warns(CapplanWarning, match=r"queue times is 0.86: windows are short"):
        check_laws(found, "here", one_front_end=False)
    with pytest.raises(InputError, match="tokens of iterations"):
        check_laws(found, "here")


def test_files_of_a_folder_are_one_after_the_other(tmp_path):
    early, late = counted([0, 10, 20]), counted([0, 0, 0, 30, 40])
    late = late[0], late[1][3:]
    (tmp_path / "1.json.gz").write_bytes(gzip.compress(query_range(early).encode()))
    (tmp_path / "2.json").write_text(query_range(late))

    of = only(tmp_path)

    assert of.at_s.tolist() == [0, 1, 2, 3, 4]
    assert of.counters["generation"].tolist() == [0, 10, 20, 30, 40]


def test_a_restart_and_a_gap_cut_the_time_of_a_replica(tmp_path):
    path = tmp_path / "m.json"
    values = [(t, v) for t, v in enumerate([5, 9, 14, 2, 6, 9])]
    values += [(100 + t, 20 + t) for t in range(3)]
    path.write_text(query_range((counted([])[0], values)))

    found = [*spans(only(path))]

    assert found == [(0, 2), (3, 5), (6, 8)]


def test_engines_behind_one_address_are_added_and_ranks_are_not(tmp_path):
    path = tmp_path / "m.json"
    ranks = [counted([0, 7], engine="0", tp_rank=rank) for rank in "01"]
    path.write_text(query_range(*ranks, counted([0, 3], engine="1")))

    assert only(path).counters["generation"].tolist() == [0, 10]


def test_snapshots_have_their_time_in_the_text_or_in_the_name(tmp_path):
    text = 'vllm:generation_tokens_total{engine="0",model_name="m"} '
    (tmp_path / "a.txt").write_text(f"# scraped_at 1780508691\n{text}5\n")
    (tmp_path / "metrics_20260603T174501Z.txt").write_text(f"# TYPE x\n{text}9\n")

    of = only(tmp_path)

    assert of.at_s.tolist() == [1780508691, 1780508701]
    assert of.counters["generation"].tolist() == [5, 9]


AT = "06-02 21:36:"
VLLM = "INFO {at} Engine 000: Avg prompt throughput: 4.5 tokens/s, Avg generation "
VLLM += "throughput: 0.4 tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, "
VLLM += "GPU KV cache usage: {kv}%, Prefix cache hit rate: 0.0%\n"
SGLANG = (
    "[2026-{at} TP0] Decode batch, #running-req: {running}, #token: 14, token usage: "
)
SGLANG += "0.{kv:02}, cuda graph: True, gen throughput (token/s): 1.6, #queue-req: "
SGLANG += "{waiting},\n"
LOGS = {
    "vllm": ("INFO GPU KV cache size: 2,633,536 tokens\n", VLLM),
    "sglang": ("max_total_num_tokens=2633536, context_len=202752\n", SGLANG),
}


def log_of(engine):
    """Return what an engine logs."""
    head, line = LOGS[engine]
    first = line.format(at=f"{AT}33", running=2, waiting=12, kv=3)
    return head + first + line.format(at=f"{AT}43", running=7, waiting=7, kv=15)


@pytest.mark.parametrize("engine", LOGS)
def test_a_log_tells_kv_tokens_and_queues(tmp_path, engine):
    path = tmp_path / "server.log"
    path.write_text(log_of(engine))

    of = only(path)

    assert of.kv_tokens == 2_633_536
    assert np.diff(of.at_s).tolist() == [10]
    assert of.gauges["running"].tolist() == [2, 7]
    assert of.gauges["waiting"].tolist() == [12, 7]
    assert of.gauges["kv_use"] == pytest.approx([0.03, 0.15], abs=0.003)


def test_kv_tokens_of_a_log_go_before_those_of_the_metrics_beside(tmp_path):
    (tmp_path / "metrics.csv").write_text(AIPERF)
    (tmp_path / "server.log").write_text(log_of("vllm"))

    of = only(tmp_path)

    assert of.kv_tokens == 2_633_536
    assert of.counters["generation"].tolist() == [0, 531_759]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"data":{"resultType":"vector","result":[]}}', "one instant of Prometheus"),
        (query_range(({}, [(0, 1), (1, 2)])), "no __name__, as rate"),
        (query_range(counted([4])), "one snapshot .* expected two at least"),
        (
            query_range(counted([1, 2], model_name="a"), counted([1], model_name="b")),
            "metrics of a, b; expected --model-name",
        ),
        (query_range(({"__name__": "up"}, [(0, 1)])), "no series of vLLM or SGLang"),
        ("nothing", "no metrics that are known"),
        ("vllm:generation_tokens_total 5\n", "no time of the snapshot"),
        (
            "# scraped_at 1780508691\nvllm:generation_tokens_total x\n",
            "m:2: expected name",
        ),
        (
            'Time,"rate(vllm:generation_tokens_total[5m])"\n1780508691000,1\n',
            "m:1: column .* names no metric, as rate",
        ),
        ('"Time","{instance=""a""}"\n1780508691000,1\n', "names no metric, as rate"),
        ("Time,Value\n1780508691000,1\n", "column 'Value' names no metric"),
        (
            "Time,vllm:generation_tokens_total\n2026-11-20 10:00:00,1.2 K\n",
            "m:2: vllm:generation_tokens_total is '1.2 K'.* “Formatted data”",
        ),
        ("Time,vllm:num_requests_running\nnoon,1\n", "m:2: Time is 'noon'"),
        (
            "Time,vllm:num_requests_running\n2026-10-25 02:59:00,1\n"
            "2026-10-25 02:00:00,1\n",
            "m:3: its time is not after",
        ),
        ("Time,vllm:num_requests_running\n1780508691000,1\n", "one snapshot of"),
        ("Time,__name__,le\n1780508691000,a,1\n", "0 columns of values"),
        ("Series;Value\na;1\n", "m:1: has no column Time"),
    ],
)
def test_what_is_no_metrics_over_time_is_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "m"
    path.write_text(text)

    with pytest.raises(InputError, match=message) as found:
        read_metrics(path)

    assert "\n" not in str(found.value)


GRAFANA = {
    "wide, ms": (
        '"Time","vllm:generation_tokens_total{instance=""a"", engine=""0""}"\r\n'
        "1780508691000,0\r\n1780508721000,\r\n1780508751000,531759\r\n\r\n"
    ),
    "wide, ISO": (
        'Time,"generation_tokens_total {__name__=""vllm:generation_tokens_total""}'
        '"\n2026-06-03T17:44:51Z,0\n2026-06-03T17:45:51Z,531759\n'
    ),
    "wide, a clock, of a spreadsheet": (
        'sep=;\n"Time";"vllm:generation_tokens_total"\n'
        "2026-06-03 17:44:51;0\n2026-06-03 17:45:51;531759\n"
    ),
    "rows of labels": (
        "Time,__name__,instance,model_name,Value #A\n"
        "1780508691000,vllm:generation_tokens_total,a,kimi,0\n"
        "1780508751000,vllm:generation_tokens_total,a,kimi,531759\n"
    ),
    "rows of series": (
        '"Series";"Time";"Value"\n'
        '"vllm:generation_tokens_total{engine=""0""}";"2026-06-03T17:44:51+00:00";0\n'
        '"vllm:generation_tokens_total{engine=""0""}";"2026-06-03T17:45:51+00:00";'
        "531759\n"
    ),
}
"""One counter as Grafana writes it: ``toCSV`` of ``packages/grafana-data``."""


@pytest.mark.parametrize("form", GRAFANA)
def test_a_csv_of_grafana_has_the_series_of_its_columns_or_rows(tmp_path, form):
    path = tmp_path / "panel-data.csv"
    path.write_text(GRAFANA[form])

    of = only(path)

    assert of.at_s.tolist() == [1780508691, 1780508751]
    assert of.counters["generation"].tolist() == [0, 531_759]


def test_a_csv_for_excel_is_refused(tmp_path):
    path = tmp_path / "panel-data.csv"
    path.write_text(GRAFANA["wide, ms"].replace(",", "\t"), encoding="utf-16")

    with pytest.raises(InputError, match="UTF-16, of Grafana's “Download for Excel”"):
        only(path)


def test_buckets_that_differ_between_engines_are_not_added(tmp_path):
    path, name = tmp_path / "m.json", "vllm:e2e_request_latency_seconds"
    rows = [
        ({"__name__": f"{name}_bucket", "engine": e, "le": le}, [(0, 0), (1, 1)])
        for e, le in (("0", "1"), ("0", "+Inf"), ("1", "2"), ("1", "+Inf"))
    ]
    rows += [({"__name__": f"{name}_sum", "engine": e}, [(0, 0), (1, 1)]) for e in "01"]
    path.write_text(query_range(*rows))

    with pytest.raises(InputError, match="other buckets of e2e_s"):
        read_metrics(path)


def observed(tokens, bounds=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, np.inf)):
    counts = np.bincount(np.searchsorted(bounds, tokens), minlength=len(bounds))
    return Observed(np.array(bounds, float), counts, float(np.sum(tokens)))


def test_lengths_have_the_buckets_and_the_mean_of_their_histogram():
    tokens = np.rint(np.random.default_rng(1).lognormal(5, 1, 20_000)).astype(int) + 1
    of = observed(tokens)

    found, _, _ = drawn(Lengths(of, 1e6), Lengths(of, 1e6), 20_000, 0.0, 0)

    assert found.mean() == pytest.approx(tokens.mean(), rel=0.01)
    assert observed(found).counts[:10] == pytest.approx(of.counts[:10], abs=30)
    wanted = np.quantile(tokens, [0.5, 0.9])
    assert np.quantile(found, [0.5, 0.9]) == pytest.approx(wanted, rel=0.12)


def test_the_correlation_of_prompts_and_answers_comes_back_from_their_contexts():
    rng = np.random.default_rng(2)
    tokens = [np.rint(rng.lognormal(6, 1, 9000)).astype(int) + 1 for _ in range(2)]
    prompt, output = (Lengths(observed(x), 1e5) for x in tokens)
    p, o, _ = drawn(prompt, output, 40_000, 0.5, 9)

    found, is_identified = identified(prompt, output, (o * (p + o / 2)).sum() / o.sum())

    assert is_identified
    assert found == pytest.approx(0.5, abs=0.08)


def test_windows_of_few_requests_are_joined_to_the_next(tmp_path):
    path, at_s = tmp_path / "m.json", range(0, 3600, 15)
    name = {"__name__": "vllm:request_success_total"}
    ended = [(t, t / 10 if t < 1800 else 180 + t - 1800) for t in at_s]
    path.write_text(query_range((name, ended)))
    of = only(path)

    found, lost = windows(of, next(spans(of)), 600)

    assert [(w.first_s, w.last_s) for w in found] == [
        (0, 2400),
        (2400, 3000),
        (3000, 3585),
    ]
    assert lost == []


def test_what_is_left_of_a_few_requests_is_told(tmp_path):
    path = tmp_path / "m.json"
    path.write_text(
        query_range(({"__name__": "vllm:request_success_total"}, [(0, 1), (9, 5)]))
    )
    of = only(path)

    assert windows(of, next(spans(of)), 600) == ([], [(0, 1)])
    assert Window(of, next(spans(of))).count("ended") == 4
