"""How full AccelGen's and other systems' iterations are (Figs. 3b and 11e)."""

from papers_claims import ANY, Claim, about
from papers_mixed import (
    OVERLOAD_PER_S,
    PARTS,
    PROMPT_HEAVY,
    SYSTEMS,
    of_seeds,
    over,
)


def compute_claims() -> list[Claim]:
    """Return the claims about GPU compute use, and those where it is the paper's."""
    accelgen, sarathi = SYSTEMS["AccelGen"], SYSTEMS["Sarathi"]
    published = {"Orca": 33, "vLLM V0, chunked": 61, "FastGen": 62, "Sarathi": 64}
    few = "few prompt tokens for each token of an answer: see prompt-heavy"
    fitted = "answers are cut so that the first samples have the paper's mean"
    small = (
        "late short prompts are urgent, and their TTFT limit of 0.5 to 1.5 of their "
        "prefill gives an S_b of some 100 tokens by Eq. 6"
    )
    claims = []
    for answers, where in ((1.0, "8/s"), (PROMPT_HEAVY, "8/s, prompt-heavy")):
        why = few if answers == 1 else ""
        claims += [
            Claim(
                f"GPU compute use of {name}, {where} (Fig. 3b)",
                f"{share} %",
                100 * of_seeds("compute_share", SYSTEMS[name], answers=answers),
                about(share),
                " %",
                why or ("one reservation at a time" if name == "Orca" else fitted),
            )
            for name, share in published.items()
        ]
        claims.append(
            Claim(
                f"GPU compute use, AccelGen over Sarathi, {where} (Fig. 11e)",
                "1.31 to 1.63",
                over("compute_share", accelgen, sarathi, answers=answers),
                (1.31, 1.63),
                "",
                small if answers < 1 else few,
            )
        )
    for figure, what in (
        ("span_tokens_per_s", "tokens/s in the span"),
        ("tokens_per_s", "tokens/s to the last token"),
    ):
        claims.append(
            Claim(
                f"{what}, AccelGen over Sarathi, 8/s, prompt-heavy (Fig. 11a)",
                "at least 1.42",
                over(figure, accelgen, sarathi, OVERLOAD_PER_S, PROMPT_HEAVY),
                (1.42, ANY[1]),
                "",
                small,
            )
        )
    for part, share in (("-Chunk", -97), ("-Order", -35), ("-Batch", -61)):
        tokens = over("tokens_per_s", PARTS[part], accelgen, answers=PROMPT_HEAVY)
        claims.append(
            Claim(
                f"tokens/s, 8/s, prompt-heavy, {part}",
                f"{share} %",
                100 * (tokens - 1),
                about(share),
                " %",
                "the order decides who waits, not how much is computed"
                if part == "-Order"
                else f"{small}; without S_b, or with whole prompts, iterations are "
                "fuller",
            )
        )
    return claims
