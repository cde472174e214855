"""After filling, all requests decode at one context; judged step by step."""

from hypothesis import given
from hypothesis import strategies as st

from capplan.profiling.filling import prompts_for_equal_context


def serve_first_come_first_served(prompts, budget_tokens):
    """Step a token budget over prompts; return contexts when all decode."""
    computed = [0] * len(prompts)
    while True:
        left = budget_tokens
        new = [0] * len(prompts)
        decoding = [c >= p for c, p in zip(computed, prompts, strict=True)]
        for row, is_decoding in enumerate(decoding):
            if is_decoding:
                new[row] = 1
                left -= 1
        for row, is_decoding in enumerate(decoding):
            if not is_decoding and left:
                new[row] = min(left, prompts[row] - computed[row])
                left -= new[row]
        if all(decoding):
            return [c + 1 for c in computed]
        computed = [c + n for c, n in zip(computed, new, strict=True)]


@given(
    batch=st.integers(1, 128),
    context=st.integers(70, 900),
    budget_tokens=st.integers(256, 2048),
)
def test_all_requests_come_to_decode_at_the_context_that_was_asked_for(
    batch, context, budget_tokens
):
    prompts = prompts_for_equal_context(batch, context, budget_tokens)

    contexts = serve_first_come_first_served(prompts, budget_tokens)
    assert len(set(contexts)) == 1
    # Those that fall short get there within some iterations.
    assert context - 16 <= contexts[0] <= context


def test_requests_whose_prompts_fit_one_iteration_are_all_alike():
    assert prompts_for_equal_context(4, 101, 400) == [100, 100, 100, 100]
