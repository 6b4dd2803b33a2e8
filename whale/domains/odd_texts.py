"""Texts that a verifier meets sooner or later, and must survive."""

MEGABYTE = 1_000_000
NOISE_TEXTS = (
    "",
    " \n\t",
    "I do not know.",
    "\x00\ud800\u202e\N{COMBINING ACUTE ACCENT}",
    "<answer>" * 999,
    "</answer>" * 999,
    "<answer></answer>",
    "<answer><answer>no answer</answer></answer>",
    "\\boxed{" * 999,
    "\\boxed{}" * 999,
    "٤٢ ４２ ½ 50% 1,000 1e400 NaN -inf",
    "0" * MEGABYTE,
    "<" * MEGABYTE,
    "{" * MEGABYTE,
    " ".join("abcdefg") * (MEGABYTE // 13),
)
FORMS = ("<answer>{}</answer>", "\\boxed{{{}}}")
"""How answers are given."""
PLAIN_TEXTS = tuple(
    form.format(text)
    for text in ("1000", "-1", "0.5", "nan", "inf", "x", "Paris", "a" * 5000, "(" * 500)
    for form in FORMS
)
"""Answers as a model gives them, right or wrong: what they score may not leave 0 to 1."""
