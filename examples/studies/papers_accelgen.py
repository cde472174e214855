"""AccelGen's figures: prompts of mixed length with SLOs of their own, one A100.

OPT-13B on an A100 with 12 GB of KV (457 blocks of 32 tokens) as in section 6.1; 65 %
ShareGPT lengths with prompts up to 2,048 tokens, 35 % long prompts, Poisson arrivals.
TTFT limits are the mean prefill time of the prompts of the same 512 tokens, times 0.5
to 1.5; TBT limits 0.1875 s times 0.75 to 1.25. The paper's long prompts have up to
100,000 tokens, which its KV does not hold: ours have 4,096 to 7,192, outputs up to
1,000. Its latency is not published; ours is derived: 16 ms (26 GB of weights at 80 % of
2 TB/s) and 0.15 ms for a prompt token (55 % of 312 TFLOP/s), 0.1 ms for a decode and
0.5 us for a token of its context, which gives T_pf(768) = 131 ms. Alpaca is left out.

At 8 requests/s, the paper's rate, twelve times what one A100 serves arrives: it tells
who waits, and nobody's TTFT is kept. 0.4/s is what it can serve. Sarathi, FastGen and
vLLM (V0, chunked) run 768 tokens in an iteration, Orca 8 seats of 8,192 tokens,
FastServe 8 seats, five levels and whole prompts (the host 1,000 GiB, reached at 24
GB/s); AccelGen is bound by its own S_b. The paper's FastServe is "built on Orca", with
its reservations; ours is as in its own source, with KV in blocks.

The paper does not say over which time it takes tokens/s: both are here, from the first
arrival to the last (the span) and to the last token. Its goodput is "with T = 1 s"
(section 6.2), tokens in time in each second; ours is tokens that are in time, over the
time to the last; beside it that of requests that keep TTFT and every gap. GPU compute
use is tokens of an iteration over S_pf (section 3.2). It is ten times lower here than
in the paper: 14,600 tokens of KV hold some seven requests of 2,150 prompt tokens, which
decode for some 200 iterations, one token each. Iterations as full as the paper's need
more prompt for each token of an answer. "Prompt-heavy" has answers of 5.5 % of their
length, with which Sarathi's use is the paper's 64 %.
"""

from papers_claims import ANY, Claim, about, markdown, table
from papers_compute import compute_claims
from papers_mixed import (
    COUNTS,
    FIFO_ORDER,
    LONGER,
    OVERLOAD_PER_S,
    PARTS,
    PROMPT_HEAVY,
    ROOM_FOR_TWO_BLOCKS,
    SERVED_PER_S,
    SLO_ORDER,
    SYSTEMS,
    mean,
    of_seeds,
    over,
    two_long_ratio,
    urgent_share,
)


def main_claims() -> list[Claim]:
    """Return the claims about AccelGen and the systems it is compared with."""
    accelgen, sarathi = SYSTEMS["AccelGen"], SYSTEMS["Sarathi"]
    orca, vllm = SYSTEMS["Orca"], SYSTEMS["vLLM V0, chunked"]
    fastserve = SYSTEMS["FastServe"]
    kv_share = mean(sarathi, OVERLOAD_PER_S).kv_share
    kept = of_seeds("gaps_kept", sarathi)
    copying = mean(fastserve, OVERLOAD_PER_S)
    least, at_least = (1.42, 11.21), (1.42, ANY[1])
    passes = (
        "short prompts pass the long ones, and are gone later: it hangs on how many "
        "come early"
    )
    same = (
        "to the last token both compute the same tokens in the same KV, of which "
        f"Sarathi fills {100 * kv_share:.0f} % (paper: 83 %): all of it would be "
        f"{1 / kv_share:.2f} times as much. Paused decodes fill KV, too, and compute "
        "nothing"
    )
    alone = (
        "Orca decodes one request in 16 to 20 ms; 11 in as much time need the KV of "
        "11, which is not there beside long prompts"
    )
    waits = "AccelGen's last requests, the long ones, wait for each other"
    claims = [
        Claim(
            "JCT, Sarathi over AccelGen, 8/s",
            "1.61 to 12.22",
            over("jct_s", sarathi, accelgen),
            (1.61, 12.22),
            "",
            "Sarathi is the next best; how far behind hangs on the long prompts drawn",
        ),
        Claim(
            "the same at 0.4/s, where little waits",
            "none",
            over("jct_s", sarathi, accelgen, SERVED_PER_S),
            ANY,
        ),
        Claim(
            "tokens/s, Orca over vLLM, 8/s",
            "least of all",
            over("tokens_per_s", orca, vllm),
            (0, 1),
        ),
    ]
    for other, name, published, band, in_span, to_last in (
        (sarathi, "Sarathi", "at least 1.42", at_least, passes, same),
        (orca, "Orca", "11.21", about(11.21), passes, alone),
        (fastserve, "FastServe", "1.42 to 11.21", least, passes, waits),
    ):
        for count in (COUNTS[OVERLOAD_PER_S], LONGER):
            claims += [
                Claim(
                    f"tokens/s {what}, AccelGen over {name}, 8/s, {count} requests "
                    "(Fig. 11a)",
                    published,
                    over(figure, accelgen, other, count=count),
                    band,
                    "",
                    why,
                )
                for what, figure, why in (
                    ("in the span", "span_tokens_per_s", in_span),
                    ("to the last token", "tokens_per_s", to_last),
                )
            ]
    return [
        *claims,
        Claim(
            "goodput, tokens in time, AccelGen over Sarathi, 8/s (Fig. 11b)",
            "1.43 to 13.71",
            over("timely_tokens_per_s", accelgen, sarathi),
            (1.43, 13.71),
            "",
            "as tokens/s to the last token: of Sarathi's tokens nearly all but the "
            "first of a request are in time",
        ),
        Claim(
            "JCT, FastServe over AccelGen, 8/s (Fig. 11d)",
            "1.61 to 12.22",
            over("jct_s", fastserve, accelgen),
            (1.61, 12.22),
            "",
            "an iteration of ours waits for its copies",
        ),
        Claim(
            "tokens/s, FastServe over Orca, 8/s (Fig. 11a)",
            "more than 1",
            over("tokens_per_s", fastserve, orca),
            (1, ANY[1]),
            "",
            "the paper's FastServe is built on Orca, ours has KV in blocks; "
            f"{copying.swaps:,.0f} swaps of {COUNTS[OVERLOAD_PER_S]} requests: an "
            f"iteration runs {100 * copying.busy_share:.0f} % of the time, the rest "
            "waits for copies, of 0.25 s for a long prompt. The paper does not tell "
            "how its FastServe copies",
        ),
        Claim(
            "share of gaps within TBT, AccelGen less Sarathi, 8/s",
            "+37 to 90 %, of iterations",
            100 * (of_seeds("gaps_kept", accelgen) - kept),
            (37, 90),
            " points",
            f"Sarathi keeps {100 * kept.mean():.4g} % of gaps already: an iteration of "
            "768 tokens takes 131 ms, the limits are 141 to 234 ms. The paper finds 16 "
            "to 34 % of iterations within 188 ms and states no times. AccelGen's late "
            "gaps are nearly all of requests that were paused",
        ),
        Claim(
            "goodput of the Oracle over AccelGen (Fig. 11b)",
            "+6 % (tokens/s +12 %, JCT -22 %)",
            (),
            ANY,
            "",
            "the Oracle knows all arrivals and lengths and is a schedule that Vidur "
            "searches; the paper states neither search nor objective, and the best "
            "schedule of 300 requests is not computable",
        ),
    ]


def kv_claims() -> list[Claim]:
    """Return the claims about how much KV is held (Fig. 3c, means of two LLMs)."""
    published = {"Orca": 88, "vLLM V0, chunked": 79, "FastGen": 80, "Sarathi": 83}
    orca = (
        "one reservation of 8,192 in 14,624 tokens is 56 %, as the settings are given"
    )
    return [
        Claim(
            f"KV held by {name}, 8/s (Fig. 3c)",
            f"{share} %",
            100 * of_seeds("kv_share", SYSTEMS[name]),
            about(share),
            " %",
            orca if name == "Orca" else "it hangs on how many long prompts wait",
        )
        for name, share in published.items()
    ]


def ablation_claims() -> list[Claim]:
    """Return the claims about AccelGen without one of its parts."""
    whole = SYSTEMS["AccelGen"]
    published = {
        "-Chunk": (-44, -97),
        "-Order": (-52, -35),
        "-Batch": (-27, -61),
        "-ERA": (None, None),
    }
    same = "each prompt token takes the same time in a chunk and in a whole prompt"
    early = (
        f"{100 * urgent_share():.0f} % of requests are urgent when they arrive: their "
        "TTFT limit, 0.5 to 1.5 of their prefill, is below N_ck T_max + T_max"
    )
    reasons = {
        "-Chunk": (
            "decodes wait for whole prompts, in most samples more than in the paper",
            f"{same}; 97 % less needs a whole prompt to cost 30 times its chunks",
        ),
        "-Order": (
            f"{early}; so slack runs as arrival does",
            "the order decides who waits, not how much is computed",
        ),
        "-Batch": (
            f"{early}, and Alg. 2 chooses among the others. Eq. 6 is off, too: S_b is "
            "S_pf, which is within most TBTs",
            same,
        ),
        "-ERA": (
            "a first chunk takes the KV of the whole prompt: two hardly fit anyway",
            "a first chunk takes the KV of the whole prompt: two hardly fit anyway",
        ),
    }
    claims = []
    for part, engine in PARTS.items():
        lost, less = reasons[part]
        for what, ratios, figure, why in (
            (
                "goodput, 0.4/s",
                over("good_tokens_per_s", engine, whole, SERVED_PER_S),
                published[part][0],
                lost,
            ),
            (
                "tokens/s, 8/s",
                over("tokens_per_s", engine, whole),
                published[part][1],
                less,
            ),
        ):
            claims.append(
                Claim(
                    f"{what}, {part}",
                    f"{figure} %" if figure else "lower",
                    100 * (ratios - 1),
                    about(figure) if figure else (-100, 0),
                    " %",
                    why,
                )
            )
    return claims


def order_claims() -> list[Claim]:
    """Return the claims about exclusive long prompts and the order by SLO."""
    era, no_era = SYSTEMS["AccelGen"], PARTS["-ERA"]
    slo, fifo = (
        of_seeds("requests_kept", engine, SERVED_PER_S, wide=True)
        for engine in (SLO_ORDER, FIFO_ORDER)
    )
    room = (
        f"{32 * ROOM_FOR_TWO_BLOCKS:,} tokens of KV: 12 GB hold only one of the two, "
        "and ERA changes nothing"
    )
    return [
        Claim(
            "JCT of two long prompts beside 20 short, with ERA over without (Fig. 6)",
            "lower",
            two_long_ratio(0, era, no_era),
            (0, 1),
            "",
            room,
        ),
        Claim(
            "JCT of all of them",
            "lower",
            two_long_ratio(1, era, no_era),
            (0, 1),
            "",
            room,
        ),
        Claim(
            "JCT of all of them, AccelGen over Sarathi",
            "lower",
            two_long_ratio(1, era, SYSTEMS["Sarathi"]),
            (0, 1),
            "",
            "Sarathi's source finishes a prompt before it begins the next: it is "
            "exclusive itself",
        ),
        Claim(
            "requests that keep their SLO, in order of slack less by arrival, 0.4/s "
            "(Fig. 7)",
            "+16 %",
            100 * (slo - fifo),
            about(16),
            " points",
            "both are AccelGen without ERA, with "
            "S_b by the strictest limit as in section 3.2, and its TBT scales of 0.25 "
            f"to 2; Sarathi itself has no S_b. {100 * urgent_share():.0f} % are urgent "
            "when they arrive, in the order of arrival but for parts of a second",
        ),
    ]


def systems_table() -> str:
    """Return the figures of each system at both rates."""
    head = (
        "at",
        "system",
        "tokens/s to the last",
        "in the span",
        "GPU compute use",
        "JCT [s]",
        "TTFT kept",
        "gaps within TBT",
        "tokens in time [/s]",
        "goodput of requests [tokens/s]",
        "KV held",
    )
    rows = []
    for rate_per_s, answers in (
        (OVERLOAD_PER_S, 1.0),
        (SERVED_PER_S, 1.0),
        (OVERLOAD_PER_S, PROMPT_HEAVY),
    ):
        for name, engine in (SYSTEMS | PARTS).items():
            figures = mean(engine, rate_per_s, answers)
            rows.append(
                (
                    f"{rate_per_s:g}/s{', prompt-heavy' if answers < 1 else ''}",
                    name,
                    f"{figures.tokens_per_s:.0f}",
                    f"{figures.span_tokens_per_s:.0f}",
                    f"{100 * figures.compute_share:.0f} %",
                    f"{figures.jct_s:.1f}",
                    f"{100 * figures.ttft_kept:.1f} %",
                    f"{100 * figures.gaps_kept:.1f} %",
                    f"{figures.timely_tokens_per_s:.1f}",
                    f"{figures.good_tokens_per_s:.1f}",
                    f"{100 * figures.kv_share:.0f} %",
                )
            )
    return markdown(head, rows)


def section() -> str:
    """Return the section of docs/how/papers.md."""
    assert __doc__ is not None
    what = __doc__.split("\n\n", 1)[1].strip()
    claims = [
        *main_claims(),
        *compute_claims(),
        *kv_claims(),
        *ablation_claims(),
        *order_claims(),
    ]
    return f"## AccelGen\n\n{what}\n\n{table(claims)}\n\n{systems_table()}\n"


if __name__ == "__main__":
    print(section())
