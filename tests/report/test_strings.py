"""Every string that a person sees is collected, and none has a banned word."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def strings():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples" / "studies"))
        import strings

        yield strings


@pytest.fixture(scope="module")
def found(strings):
    return list(strings.strings())


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("capplan/planning/settings/groups.py", "Region to buy in (default: any)."),
        ("capplan/report/sentences.py", "; a full backlog drains {within}"),
        ("capplan/report/fields.csv", "in time"),
        ("capplan/conflicts.csv", "requests move within one pool"),
        ("capplan/latency/profile.py", "measured; its times are extrapolated"),
        ("capplan/units.py", "is negative; expected a time >= 0"),
        ("docs/sure/risk.md", "# Risk: how sure is the number of GPUs?"),
        ("README.md", "# capplan"),
        ("capplan/bounds/README.md", "certificate"),
    ],
)
def test_help_sentences_headings_reasons_errors_and_pages_are_collected(
    found, file, text
):
    assert any(text in each.text for each in found if each.file == file)


def test_docstrings_keys_and_assertions_are_not_collected(strings, tmp_path):
    path = ROOT / "capplan" / "report" / "page.py"

    texts = " ".join(each.text for each in strings.of_module(path))

    assert "; also " in texts
    assert "Return warnings" not in texts


@pytest.mark.parametrize(
    "text",
    [
        "utilisation 0.74; forgets a full queue in 277 s",
        "5 replicas attain the target in all such windows",
        "4446.81 replica seconds of work must be done",
        "2 × gpu_8x_h100 (16 GPUs, none stranded)",
        "it is no rival to the best",
        "so that a difference is none of chance",
        "Without 2 plans that is not feasible.",
        "From 1 days of requests, which are no whole week",
        "of a prompt the time by which it lengthens iterations",
        "a context is beyond what was measured; alike for H200",
        "columns not read: tenant",
        "Drawn arrivals are judged once the fleet has settled",
        "needs at least 8 GPUs; B200-SXM × TP 1 does with 7",
        "the median of 5 run(s)",
    ],
)
def test_a_sentence_of_the_old_kind_is_an_offender(strings, text):
    seen = iter([strings.String("docs/sure/risk.md", 1, text)])

    assert list(strings.offenders(seen))


def test_names_in_a_sentence_are_none_of_its_words(strings):
    texts = (
        ("capplan/a.py", "asked {row.attainment} of {row['stranded_gpus']}"),
        ("docs/a.md", "`slo_attainment` by `--attain-in` or --attainment 0.99"),
    )

    seen = (strings.String(file, 1, text) for file, text in texts)

    assert list(strings.offenders(seen)) == []


def test_no_string_has_a_banned_word(strings, found):
    assert list(strings.offenders(iter(found))) == []
