"""Whether a harness quotes a hidden question of a domain of one's own."""

from collections.abc import Mapping, Sequence

from whale.domains.base import SPLITS, Split, Task
from whale.domains.comparison import question_form, unescaped


class QuestionLeak:
    """Looks for the questions of D_harness, validation and test in a text, case and punctuation aside.

    What stands there as part of a training question ("2 + 3" in "2 + 3 + 4") is no leak. Where a training question
    differs from a hidden one in case or punctuation alone, the two are told apart as they are written.
    """

    def __init__(self, splits: Mapping[Split, Sequence[Task]]) -> None:
        self._training = frozenset(question_form(task.public["question"]) for task in splits["weight"])
        self._hidden = [
            (split, task.id, task.public["question"], question_form(task.public["question"]))
            for split in SPLITS
            if split != "weight"
            for task in splits[split]
        ]

    def __call__(self, text: str) -> str | None:
        """Why this text smuggles a hidden question, or None. A JSON file's escapes are looked through."""
        texts = {text, unescaped(text)} if "\\" in text else {text}
        forms = [f" {question_form(each)} " for each in texts]
        for split, id_, question, form in self._hidden:
            if form and form not in self._training:
                found = any(self._stands(f" {form} ", each) for each in forms)
            else:
                found = any(one_spaced(question) in one_spaced(each) for each in texts)
            if found:
                return f"it contains a question of the {split} split ({id_})"
        return None

    def _stands(self, question: str, text: str) -> bool:
        if question not in text:
            return False
        holding = {f" {training} " for training in self._training if question in f" {training} "}
        for training in sorted(holding, key=len, reverse=True):
            text = text.replace(training, "  ")
        return question in text


def one_spaced(text: str) -> str:
    """The text with single spaces for all white space."""
    return " ".join(text.split())
