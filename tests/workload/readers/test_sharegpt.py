"""ShareGPT: which messages make a request, how tokens are counted, what is cut off."""

import gzip
import json
import warnings

import pytest

from capplan.errors import InputError, TraceWarning
from capplan.workload.readers import read_trace

CONVERSATIONS = [
    [("human", "a" * 8), ("gpt", "b" * 6), ("human", "c" * 4), ("gpt", "d" * 5)],
    [("gpt", "e" * 7), ("human", "f" * 9), ("gpt", "g" * 10)],
    [],
    [("human", "alone")],
    [("system", "s" * 3), ("human", "h" * 5), ("gpt", "i" * 11)],
    [("human", "j" * 1020), ("gpt", "k" * 1030)],
    [("human", "l" * 12), ("gpt", "")],
]
"""Messages whose tokens are their letters, as the tokenizer below counts them."""


def sharegpt_json(conversations):
    return json.dumps(
        [
            {
                "id": str(number),
                "conversations": [
                    {"from": role, "value": text} for role, text in messages
                ],
            }
            for number, messages in enumerate(conversations)
        ],
        indent=1,
    ).encode()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "sharegpt.json"
    path.write_bytes(sharegpt_json(CONVERSATIONS))
    return path


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A tokenizer.json whose every letter is one token."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    letters = {letter: i for i, letter in enumerate("abcdefghijklmnopqrstuvwxyz é")}
    letters["<s>"] = len(letters)
    tokens = Tokenizer(models.WordLevel(letters, unk_token="a"))
    tokens.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokens.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", letters["<s>"])]
    )
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokens.save(str(path))
    return path


# Worked by hand from CONVERSATIONS: prompt, output, conversation.
EXPECTED = {
    "first": [(8, 6, 0), (8, 11, 4), (1020, 1030, 5)],
    # 3 system letters are fewer than 4; 2,050 are more than 2,048 in all.
    "vllm": [(8, 6, 0), (7, 9, 1)],
    "multiturn": [
        (8, 6, 0),
        (18, 5, 0),
        (16, 10, 1),
        (8, 11, 4),
        (1020, 1030, 5),
    ],
}


@pytest.mark.parametrize("rule", EXPECTED)
def test_a_rule_takes_these_messages(path, tokenizer, rule):
    trace = read_trace(path, sharegpt_rule=rule, tokenizer=tokenizer)

    counted = list(
        zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True)
    )
    assert counted == [row[:2] for row in EXPECTED[rule]]
    assert trace.arrival_s is None


def test_turns_of_a_conversation_share_it_as_their_prefix(path, tokenizer):
    trace = read_trace(path, sharegpt_rule="multiturn", tokenizer=tokenizer)

    assert trace.prefix_group.tolist() == [row[2] for row in EXPECTED["multiturn"]]
    assert trace.prefix_tokens.tolist() == trace.prompt_tokens.tolist()
    assert trace.session.tolist() == trace.prefix_group.tolist()


def test_without_a_tokenizer_the_estimate_is_said_loudly(path):
    with pytest.warns(TraceWarning, match="token counts are an estimate"):
        trace = read_trace(path)

    # 8, 6, 1020 and 1030 ASCII letters at 4.57 a token.
    assert trace.prompt_tokens.tolist() == [2, 2, 223]
    assert trace.output_tokens.tolist() == [1, 2, 225]
    assert "estimate" in trace.notes[0]


def test_a_tokenizer_may_be_named_by_its_folder(path, tokenizer):
    trace = read_trace(path, tokenizer=tokenizer.parent)

    assert trace.prompt_tokens.tolist() == [8, 8, 1020]


def test_a_tokenizer_that_is_missing_or_none_is_refused(path, tmp_path):
    with pytest.raises(InputError, match=r"nowhere\.json: no such file"):
        read_trace(path, tokenizer=tmp_path / "nowhere.json")
    with pytest.raises(InputError, match=r"not a tokenizer\.json"):
        read_trace(path, tokenizer=path)


@pytest.mark.parametrize("zipped", [False, True], ids=["plain", "gz"])
def test_a_file_that_is_cut_off_names_its_end_and_salvage(tmp_path, tokenizer, zipped):
    whole = sharegpt_json(CONVERSATIONS)
    cut = whole[: whole.index(b"iiii") + 2]  # inside the answer of conversation 5
    path = tmp_path / "cut.json"
    path.write_bytes(gzip.compress(cut) if zipped else cut)

    with pytest.raises(InputError) as caught:
        read_trace(path, tokenizer=tokenizer)

    assert f"it ends in the middle, at character {len(cut):,}" in str(caught.value)
    assert "after 4 whole records" in str(caught.value)
    assert "--salvage" in str(caught.value)


def test_salvage_keeps_the_whole_conversations(tmp_path, tokenizer):
    whole = sharegpt_json(CONVERSATIONS)
    path = tmp_path / "cut.json"
    path.write_bytes(whole[: whole.index(b"iiii") + 2])

    with pytest.warns(TraceWarning, match="4 whole records, which are kept"):
        trace = read_trace(path, tokenizer=tokenizer, salvage=True)

    assert trace.prompt_tokens.tolist() == [8]
    assert any("4 whole records" in note for note in trace.notes)


def test_gzip_that_is_cut_off_can_be_salvaged_too(tmp_path, tokenizer):
    many = sharegpt_json(CONVERSATIONS[:1] * 5_000)
    path = tmp_path / "cut.json.gz"
    path.write_bytes(gzip.compress(many)[:-300])

    with pytest.warns(TraceWarning, match="whole records, which are kept"):
        trace = read_trace(path, tokenizer=tokenizer, salvage=True)

    assert 1000 < len(trace) < 5_000


def test_a_break_in_the_middle_is_named_to_the_character(tmp_path, tokenizer):
    whole = sharegpt_json(CONVERSATIONS * 500)
    at = whole.index(b'"conversations"', len(whole) // 2)
    path = tmp_path / "broken.json"
    path.write_bytes(whole[:at] + b"?" + whole[at:])

    with pytest.raises(InputError, match=rf":\d+: not JSON: .* at character {at:,},"):
        read_trace(path, tokenizer=tokenizer)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"conversations": [{"from": "human"}]}]', "item 1: not the messages"),
        ('[{"conversations": [{"from": "human", "value": 3}]}]', "item 1: not the"),
        ('[{"conversations": []}]', "no request in 1 conversations"),
        ('{"conversations": []}', "no request in 1 conversations"),
    ],
)
def test_what_is_not_sharegpt_is_refused(tmp_path, text, message):
    path = tmp_path / "other.json"
    path.write_text(text)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TraceWarning)
        with pytest.raises(InputError, match=message):
            read_trace(path, reader_name="sharegpt")


def test_an_unknown_rule_names_the_known_ones(path):
    with pytest.raises(InputError, match="first, vllm, multiturn"):
        read_trace(path, sharegpt_rule="last")
